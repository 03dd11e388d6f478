"""Which devices hold the same value: data flow from partition ids and sharded parameters to the conditions of loops.

Floor: spmd.  Reads per-device programs.  A value is known as one number per device: equal numbers mean equal
values (or, for small integers made from the partition id, they are the values).  Only what conditions depend on is
looked at, so the price of a straight program is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hlosharding.ir import COLLECTIVES, Instruction, Module, arguments, callers, while_parts
from hlosharding.sharding import HloSharding, tile_table

Node = tuple[Instruction, tuple[int, ...]]
"""An array that an instruction makes: the leaf of its result at a path."""
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.logical_not,
    "select": lambda p, a, b: np.where(p != 0, a, b),
}  # fmt: skip
_COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
            "GE": np.greater_equal}  # fmt: skip
_DISTINCT = frozenset({"infeed", "rng", "recv", "recv-done", "rng-get-and-update-state"})


class Uniformity:
    """Answers `conditions` of one module; remembers what it found."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._count = max(1, module.num_partitions)
        self._same = np.zeros(self._count, np.int64)
        self._callers = callers(module)
        self._found: dict[Node, np.ndarray] = {}
        self._exact: dict[Node, np.ndarray] = {}
        self._moved: dict[Instruction, tuple[Instruction, np.ndarray]] = {}
        """Arrays that only moved between devices: of what, and whose each device has (-1: zeros that nobody sent)."""

    def condition(self, inst: Instruction) -> np.ndarray:
        """One number per device for a while or conditional: devices with equal ones take the same way."""
        node = self._condition_node(inst)
        if node not in self._found:
            self._solve(node)
        return self._found[node]

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
        return len({int(self._found[node][d]) for d in members}) > 1

    def _condition_node(self, inst: Instruction) -> Node:
        if inst.opcode == "while":
            return while_parts(inst).condition.root, ()
        return inst.operands[0], ()

    # ---- the part of the program that matters, and its fixed point

    def _solve(self, node: Node) -> None:
        nodes = self._slice(node)
        for each in nodes:
            self._found.setdefault(each, self._same)
        changed = True
        while changed:
            changed = False
            for each in nodes:
                found = self._evaluate(each)
                old = self._found[each]
                if found is not old and not np.array_equal(found, old):
                    self._found[each], changed = found, True

    def _slice(self, node: Node) -> list[Node]:
        """All nodes that it depends on, in program order."""
        seen, stack = {node}, [node]
        while stack:
            for source in self._sources(stack.pop()):
                if source not in seen:
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
            case "opt-barrier" | "copy" | "domain":
                yield inst.operands[0], path
            case _:
                for operand in inst.operands:
                    yield from ((operand, p) for p in _paths(operand))

    def _arguments(self, parameter: Instruction, path: tuple[int, ...]) -> Iterator[Node]:
        for site in self._callers.get(parameter.computation, ()):
            yield from ((argument, path) for argument in arguments(site, parameter))
            if site.opcode == "while":
                yield self._condition_node(site)

    # ---- what one op makes of what is known

    def _evaluate(self, node: Node) -> np.ndarray:
        inst, path = node
        exact = self._exact_value(inst) if not path else None
        if exact is not None:
            self._exact[node] = exact
            return self._classes([exact])
        self._exact.pop(node, None)
        if inst.opcode == "parameter" and inst.computation.is_entry:
            return self._of_parameter(inst, path)
        if inst.opcode in _DISTINCT or (inst.opcode == "collective-permute" and path):
            return np.arange(self._count)
        if inst.opcode in ("collective-permute", "select") and not path and self._move(inst):
            source, owners = self._moved[inst]
            known = self._found.get((source, ()), self._same)
            return self._classes([np.where(owners < 0, -1, known[owners])])
        given = [self._found.get(source, self._same) for source in self._sources(node)]
        return self._exchanged(inst, given) if inst.opcode in COLLECTIVES else self._classes(given)

    def _classes(self, given: Sequence[np.ndarray]) -> np.ndarray:
        """Devices that agree in all of `given`."""
        varying = [g for g in given if g is not self._same]
        if not varying:
            return self._same
        found = np.unique(np.stack(varying), axis=1, return_inverse=True)[1].reshape(-1)
        return found if found.any() else self._same

    def _of_parameter(self, inst: Instruction, path: tuple[int, ...]) -> np.ndarray:
        sharding = self._module.shardings.get(inst.id)
        if sharding is None:
            return self._same
        leaf = sharding.normalize_tuple(len(inst.shape.leaves)).leaves[_leaf_index(inst, path)]
        return self._classes([_tile_classes(leaf, self._count)])

    def _exchanged(self, inst: Instruction, given: Sequence[np.ndarray]) -> np.ndarray:
        classes = self._classes(given)
        groups = inst.replica_groups or (tuple(range(self._count)),)
        rows = np.zeros((self._count, len(groups[0]) + 1), np.int64)
        for group in groups:
            for place, device in enumerate(group):
                rows[device, : len(group)] = classes[list(group)]
                rows[device, -1] = place if inst.opcode in ("reduce-scatter", "all-to-all") else 0
        return self._classes(list(rows.T))

    def _move(self, inst: Instruction) -> bool:
        """Note whose array each device has after a permute, or after a choice between what came and what was there."""
        if inst in self._moved:
            return True
        given = [self._moved.get(o, (o, np.arange(self._count))) for o in inst.operands]
        if inst.opcode == "collective-permute":
            source, owners = given[0]
            found = np.full(self._count, -1)
            for sender, target in inst.source_target_pairs:
                found[target] = owners[sender]
        else:
            chosen = self._exact.get((_scalar(inst.operands[0]), ()))
            (source, owners), (other, others) = given[1:]
            if chosen is None or source is not other:
                return False
            found = np.where(chosen != 0, owners, others)
        self._moved[inst] = source, found
        return True

    def _exact_value(self, inst: Instruction) -> np.ndarray | None:
        """The integers themselves, one per device, where they follow from partition ids and constants."""
        if inst.opcode == "partition-id":
            return np.arange(self._count)
        if not inst.shape.is_array or inst.shape.size != 1 or inst.shape.dtype.kind not in "iub":
            return None
        if inst.opcode == "constant":
            return np.full(self._count, int(inst.literal.reshape(-1)[0]))
        given = [self._exact.get((operand, ())) for operand in inst.operands]
        if inst.opcode == "dynamic-slice" and inst.operands[0].opcode == "constant" and len(given) == 2:
            table, at = inst.operands[0].literal.reshape(-1), given[1]
            return None if at is None else table[np.clip(at, 0, len(table) - 1)].astype(np.int64)
        known = [g for g in given if g is not None]
        return _computed(inst, known) if known and len(known) == len(given) else None


def _scalar(inst: Instruction) -> Instruction:
    """What an array is a broadcast of."""
    return _scalar(inst.operands[0]) if inst.opcode == "broadcast" else inst


def _computed(inst: Instruction, given: Sequence[np.ndarray]) -> np.ndarray | None:
    match inst.opcode:
        case "convert" | "reshape" | "copy" | "bitcast" | "broadcast":
            return given[0]
        case "compare":
            return _COMPARE[inst.comparison_direction](*given).astype(np.int64)
        case "divide" if (given[1] > 0).all() and (given[0] >= 0).all():
            return given[0] // given[1]
        case "remainder" if (given[1] > 0).all() and (given[0] >= 0).all():
            return given[0] % given[1]
        case "clamp":
            return np.clip(given[1], given[0], given[2])
        case opcode if opcode in _ARITHMETIC:
            return np.asarray(_ARITHMETIC[opcode](*given)).astype(np.int64)
        case _:
            return None


def _tile_classes(sharding: HloSharding, count: int) -> np.ndarray:
    if sharding.is_manual() or sharding.is_unreduced() or sharding.is_maximal():
        return np.arange(count)
    if sharding.kind != "tiled":
        return np.zeros(count, np.int64)
    rank = len(sharding.data_dims)
    tiles = sharding.tiles.array
    kept = [d for d in range(tiles.ndim) if d < rank or sharding.subgroup_types[d - rank] != "replicated"]
    if len(kept) == rank:
        table = np.array(tile_table(sharding, rank, count)).reshape(count, rank)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)
    out = np.zeros(count, np.int64)
    rest = [d for d in range(tiles.ndim) if d not in kept]
    rows = tiles.transpose([*kept, *rest]).reshape(int(np.prod([tiles.shape[d] for d in kept])), -1)
    for number, row in enumerate(rows):
        out[row] = number
    return out


def _paths(inst: Instruction) -> Iterator[tuple[int, ...]]:
    def walk(shape: object, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        parts = getattr(shape, "tuple_shapes", ())
        if not parts:
            yield path
        for index, part in enumerate(parts):
            yield from walk(part, (*path, index))

    return walk(inst.shape, ())


def _leaf_index(inst: Instruction, path: tuple[int, ...]) -> int:
    return list(_paths(inst)).index(path) if path else 0
