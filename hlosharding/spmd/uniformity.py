"""Uniformity analysis: which devices hold the same value, from ids and sharded parameters to the conditions of loops.

Floor: spmd.  Reads per-device programs.  A value is known as one class number per device: devices of one class hold
equal values.  Only what conditions depend on is looked at, so a program without conditions costs nothing.  Small
integers are known beside that: one number per device, made from its partition id, constants and tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from hlosharding.ir import Computation, Instruction, Module, Shape, arguments, callers, collective_kind, while_parts
from hlosharding.sharding import HloSharding
from hlosharding.spmd.participants import Devices, device_groups, devices_of, permute_pairs

_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "select": lambda p, a, b: np.where(p != 0, a, b),
}  # fmt: skip
_COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
            "GE": np.greater_equal}  # fmt: skip
_ONE_VALUE = frozenset({"convert", "reshape", "copy", "bitcast", "broadcast"})


def integers_of(inst: Instruction, operands: Sequence[np.ndarray | None], devices: Devices) -> np.ndarray | None:
    """The integer that `inst` is on each device, given those of its operands; None where that is not known."""
    if inst.opcode == "partition-id":
        return np.arange(devices.count) % devices.partitions
    if inst.opcode == "replica-id":
        return np.arange(devices.count) // devices.partitions
    if not inst.shape.is_array or inst.shape.size != 1 or inst.shape.dtype.kind not in "iub":
        return None
    if inst.shape.element_type == "u64":  # its largest numbers are none of int64
        return None
    if inst.opcode == "constant":
        return np.full(devices.count, int(inst.literal.reshape(-1)[0]))
    if inst.opcode == "dynamic-slice" and inst.operands[0].opcode == "constant" and len(operands) == 2:
        # Clipped, as HLO moves a start that is out of range back into it.
        table, at = inst.operands[0].literal.reshape(-1), operands[1]
        return None if at is None else table[np.clip(at, 0, len(table) - 1)].astype(np.int64)
    known = [values for values in operands if values is not None]
    found = _computed(inst, known) if known and len(known) == len(operands) else None
    # What leaves its type wraps around: 0 - 1 is the largest number without a sign, not less than 0.
    return None if found is None else found.astype(inst.shape.dtype).astype(np.int64)


_DEEPEST = 8
"""Ops from a partition id to the integer, at most."""


def integer_on_devices(inst: Instruction, devices: Devices, depth: int = _DEEPEST) -> np.ndarray | None:
    """The integer that a scalar is on each device (where slices begin); None where that depends on more."""
    if not depth or not inst.shape.is_array or inst.shape.size != 1 or inst.shape.dtype.kind not in "iu":
        return None
    operands = [integer_on_devices(operand, devices, depth - 1) for operand in inst.operands]
    return integers_of(inst, operands, devices)


def _computed(inst: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    match inst.opcode:
        case opcode if opcode in _ONE_VALUE:
            return operands[0]
        case "compare":
            return _COMPARE[inst.comparison_direction](*operands)
        case "divide" if _are_natural(operands):
            return operands[0] // operands[1]
        case "remainder" if _are_natural(operands):
            return operands[0] % operands[1]
        case "not":
            return np.bitwise_not(operands[0].astype(inst.shape.dtype))
        case "clamp":
            return np.clip(operands[1], operands[0], operands[2])
        case opcode if opcode in _ARITHMETIC:
            return _ARITHMETIC[opcode](*operands)
        case _:
            return None


def _are_natural(operands: Sequence[np.ndarray]) -> bool:
    """Numbers on which numpy and HLO divide alike."""
    return bool((operands[1] > 0).all() and (operands[0] >= 0).all())


Node = tuple[Instruction, tuple[int, ...]]
"""An array that an instruction makes: the leaf of its result at a path."""
_DISTINCT = frozenset({"infeed", "rng", "recv", "recv-done", "rng-get-and-update-state"})
# Of each group member its own part of the result.
_BY_POSITION = frozenset({"reduce-scatter", "all-to-all", "ragged-all-to-all"})


class Uniformity:
    """Answers for the conditions of one module; remembers what it found."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._devices = devices_of(module)
        self._uniform = np.zeros(self._devices.count, np.int64)
        self._classes: dict[Node, np.ndarray] = {}
        self._readers: dict[Node, list[Node]] = {}
        self._integers: dict[Node, np.ndarray] = {}
        self._joins: dict[tuple[bytes, ...], np.ndarray] = {}
        self._moved: dict[Instruction, tuple[Instruction, np.ndarray]] = {}
        """Arrays that only moved between devices: of what, and whose each device has (-1: zeros that nobody sent)."""

    @cached_property
    def _callers(self) -> Mapping[Computation, Sequence[Instruction]]:
        return callers(self._module)

    def condition(self, inst: Instruction) -> np.ndarray:
        """Classes of the condition of a while or conditional: devices of one class take the same way."""
        node = self._condition_node(inst)
        if node not in self._classes:
            self._solve(node)
        return self._classes[node]

    def forget(self, inst: Instruction) -> None:
        """The condition of a while or conditional is about to be replaced: what follows from it is found anew."""
        stale = [self._condition_node(inst)]
        while stale:
            node = stale.pop()
            self._classes.pop(node, None)
            self._integers.pop(node, None)
            self._moved.pop(node[0], None)
            stale += self._readers.pop(node, ())

    def origin(self, inst: Instruction, members: Sequence[int]) -> Instruction:
        """Where the condition's difference between `members` comes from."""
        node, seen = self._condition_node(inst), set[Node]()
        while node not in seen:
            seen.add(node)
            sources = [n for n in self._sources(node) if n not in seen and self._differs(n, members)]
            if not sources:
                break
            node = sources[0]
        return node[0]

    def _differs(self, node: Node, members: Sequence[int]) -> bool:
        return len({int(self._classes[node][d]) for d in members}) > 1

    def _condition_node(self, inst: Instruction) -> Node:
        if inst.opcode == "while":
            return while_parts(inst).condition.root, ()
        return inst.operands[0], ()

    # ---- the part of the program that matters, and its fixed point

    def _solve(self, node: Node) -> None:
        nodes, users = self._backward_slice(node), self._readers
        self._classes |= dict.fromkeys(nodes, self._uniform)
        stale = set(nodes)
        while stale:
            while stale:
                # In program order operands come first, so that but for loops one look at each is enough.
                for each in nodes:
                    if each in stale:
                        stale.discard(each)
                        stale.update(users.get(each, ()) if self._changes(each) else ())
            # A permute or a choice also reads what lies behind its operands: a last look at all.
            stale = {user for each in nodes if self._changes(each) for user in users.get(each, ())}

    def _changes(self, node: Node) -> bool:
        """Evaluate it; is it something else than before?"""
        found, old = self._evaluate(node), self._classes[node]
        if found is old or np.array_equal(found, old):
            return False
        self._classes[node] = found
        return True

    def _backward_slice(self, node: Node) -> list[Node]:
        """All nodes that it depends on and that are not solved yet, in program order; notes who reads each."""
        seen, stack = {node}, [node]
        while stack:
            user = stack.pop()
            for source in self._sources(user):
                self._readers.setdefault(source, []).append(user)
                if source not in seen and source not in self._classes:
                    seen.add(source)
                    stack.append(source)
        return sorted(seen, key=lambda n: (n[0].id, n[1]))

    def _sources(self, node: Node) -> Iterator[Node]:
        inst, path = node
        match inst.opcode:
            case "parameter":
                yield from self._arguments(inst, path)
            case "tuple":
                yield inst.operands[path[0]], path[1:]
            case "get-tuple-element":
                yield inst.operands[0], (inst.tuple_index, *path)
            case "while":
                yield from ((inst.operands[0], path), (while_parts(inst).body.root, path), self._condition_node(inst))
            case "conditional":
                yield self._condition_node(inst)
                yield from ((branch.root, path) for branch in inst.called)
            case "call" | "fusion":
                yield inst.called[0].root, path
            case "opt-barrier" | "copy" | "domain" | "all-reduce-done" | "async-update":
                yield inst.operands[0], path
            case "all-gather-done" | "async-done":  # a start makes (operands, results, context ...)
                yield inst.operands[0], (1, *path)
            case "async-start" if path[0] == 1:
                yield inst.called[0].root, path[1:]
            case _:
                for operand in inst.operands:
                    yield from ((operand, p) for p in _paths(operand.shape))

    def _arguments(self, parameter: Instruction, path: tuple[int, ...]) -> Iterator[Node]:
        for site in self._callers.get(parameter.computation, ()):
            yield from ((argument, path) for argument in arguments(site, parameter))
            if site.opcode == "while":
                yield self._condition_node(site)

    # ---- what one op makes of what is known

    def _evaluate(self, node: Node) -> np.ndarray:
        inst, path = node
        integers = (
            None if path else integers_of(inst, [self._integers.get((o, ())) for o in inst.operands], self._devices)
        )
        if integers is not None:
            self._integers[node] = integers
            return self._joined([integers])
        self._integers.pop(node, None)
        if inst.opcode == "parameter" and inst.computation.is_entry:
            return self._of_parameter(inst, path)
        kind = collective_kind(inst.opcode)
        is_unknown = inst.opcode == "parameter" and next(self._sources(node), None) is None
        if is_unknown or inst.opcode in _DISTINCT or (kind == "collective-permute" and path):
            return np.arange(self._devices.count)
        if not path and self._is_moved(inst):
            source, owners = self._moved[inst]
            classes = self._classes.get((source, ()), self._uniform)
            return self._joined([np.where(owners < 0, -1, classes[owners])])
        operands = self._joined([self._classes.get(source, self._uniform) for source in self._sources(node)])
        is_result = kind is not None and not (inst.opcode == "all-gather-start" and path[0] == 0)
        return self._exchanged(inst, operands) if is_result else operands

    def _joined(self, given: Sequence[np.ndarray]) -> np.ndarray:
        """Devices that agree in all of `given`; each class has the number of its first device, in a loop, too."""
        varying = [g for g in given if g is not self._uniform]
        if not varying:
            return self._uniform
        # A program has few ways to tell devices apart, and asks for each thousands of times.
        key = tuple(dict.fromkeys(g.tobytes() for g in varying))
        if key not in self._joins:
            self._joins[key] = self._told_apart(varying)
        return self._joins[key]

    def _told_apart(self, varying: Sequence[np.ndarray]) -> np.ndarray:
        _, first, classes = np.unique(np.stack(varying), axis=1, return_index=True, return_inverse=True)
        # As np.unique numbers them, equal classes could get other numbers in each round of a loop, and its fixed point
        # would never come.
        found = first[classes.reshape(-1)]
        # That all are alike is one object: it is known by identity, and costs nothing to join.
        return found if found.any() else self._uniform

    def _of_parameter(self, inst: Instruction, path: tuple[int, ...]) -> np.ndarray:
        partitions, replicas = self._devices
        sharding = self._module.shardings.get(inst.id)
        tiles = np.zeros(partitions, np.int64)
        if sharding is not None:
            number = list(_paths(inst.shape)).index(path) if path else 0
            leaf = sharding.normalize_tuple(len(inst.shape.leaves)).leaves[number]
            tiles = _tile_classes(leaf, partitions)
        # Each replica is given arguments of its own.
        return self._joined([np.tile(tiles, replicas), np.repeat(np.arange(replicas), partitions)])

    def _exchanged(self, inst: Instruction, operands: np.ndarray) -> np.ndarray:
        """Groups whose members hold pairwise the same make the same of it, member by member."""
        groups = device_groups(inst, self._devices)
        is_by_position = collective_kind(inst.opcode) in _BY_POSITION
        # Groups may be of different sizes: -1 stands where a smaller one has nobody.
        rows = np.full((self._devices.count, max(map(len, groups)) + 1), -1, np.int64)
        for group in map(list, groups):
            rows[group, : len(group)] = operands[group]
            rows[group, -1] = np.arange(len(group)) if is_by_position else 0
        return self._joined(list(rows.T))

    def _is_moved(self, inst: Instruction) -> bool:
        """Note whose array each device has after a permute, or after a choice between what came and what was there."""
        if inst in self._moved:
            return True
        permute = inst.operands[0] if inst.opcode == "collective-permute-done" else inst
        if collective_kind(permute.opcode) == "collective-permute":
            self._moved[inst] = self._permuted(permute)
        elif inst.opcode == "select":
            chosen = self._integers.get((_scalar(inst.operands[0]), ()))
            (source, owners), (other, others) = map(self._owners, inst.operands[1:])
            if chosen is None or source is not other:
                return False
            self._moved[inst] = source, np.where(chosen != 0, owners, others)
        return inst in self._moved

    def _owners(self, inst: Instruction) -> tuple[Instruction, np.ndarray]:
        return self._moved.get(inst, (inst, np.arange(self._devices.count)))

    def _permuted(self, inst: Instruction) -> tuple[Instruction, np.ndarray]:
        source, owners = self._owners(inst.operands[0])
        found = np.full(self._devices.count, -1)
        for sender, target in permute_pairs(inst, self._devices):
            found[target] = owners[sender]
        return source, found


def _scalar(inst: Instruction) -> Instruction:
    """What an array is a broadcast of."""
    return _scalar(inst.operands[0]) if inst.opcode == "broadcast" else inst


def _tile_classes(sharding: HloSharding, count: int) -> np.ndarray:
    """Classes of devices that hold the same tile."""
    if sharding.is_manual() or sharding.is_unreduced() or sharding.is_maximal():
        return np.arange(count)
    if sharding.kind != "tiled":
        return np.zeros(count, np.int64)
    rank = len(sharding.data_dims)
    tiles = sharding.tiles.array
    split = [d for d in range(tiles.ndim) if d < rank or sharding.subgroup_types[d - rank] != "replicated"]
    out = np.zeros(count, np.int64)
    rest = [d for d in range(tiles.ndim) if d not in split]
    rows = tiles.transpose([*split, *rest]).reshape(int(np.prod([tiles.shape[d] for d in split])), -1)
    out[rows] = np.arange(len(rows))[:, None]
    return out


def _paths(shape: Shape, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if not shape.tuple_shapes:
        yield path
    for index, part in enumerate(shape.tuple_shapes):
        yield from _paths(part, (*path, index))
