"""The choices that a program leaves open, as arrays: how each class of values lies, and how each op is split.

Floor: search.

    x --(reshard)--> copy of x --(reshard)--> dot split [1,1,4] --(all-reduce)--> h

A *class of values* has a placement, and so has the copy of a value that its readers share, where there are several.  An
*op* has a split of its iteration space, which says how it wants each operand, and how its results come out.  An edge
costs what the partitioner's plan of the reshard between its two ends takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from hlosharding.cost import MOST_BYTES, PART_READERS, sustained_rate
from hlosharding.ir import (
    ELEMENTWISE,
    GENERATORS,
    PACKS,
    Instruction,
    Module,
    Shape,
    executions,
    open_dims_of,
)
from hlosharding.partitioner import OpSplit, Prices, alike_in_layers, as_compared, even_placements, every_split
from hlosharding.rules import Signature, signature_of
from hlosharding.search.choices import SelectionProblem
from hlosharding.search.optimum.buffers import Buffer, find_buffers
from hlosharding.search.optimum.nodes import Behind, Edge, Node, Spent, Weights
from hlosharding.search.optimum.op_seconds import OpSeconds
from hlosharding.search.optimum.overlapped import Overlapped
from hlosharding.search.optimum.reshard_table import Integers, Numbers, ReshardTable
from hlosharding.search.optimum.value_classes import ValueClasses
from hlosharding.search.updates import find_updated
from hlosharding.sharding import REPLICATED, HloSharding, TileAssignment, replicate_on_dims

_PASSED_ON = GENERATORS | PACKS | {"call", "conditional", "copy", "opt-barrier", "parameter", "while"}
"""What makes no array that lies otherwise than those it is made of, or made of nothing."""
_HELD = 1e-3
"""Of the time in which a device reads what it holds of an argument, its price: of equal choices that of the least."""
_RISEN = 1 + 1e-6
"""Times its bound: what a rounding leaves is no rise."""
_CHOSEN_APART = 4_000
"""Ops: of so few each layer is chosen for itself, as layers of one product are best split now by rows, now by columns
(0.95 of the time).  Eight layers of Llama (6,400) chosen so take two minutes where memory is scarce, and are alike."""
_SMALL = 1 / 4096
"""Of the memory; buffers that are smaller, whole, are not counted."""
_FALLEN = 1 - 1e-3
"""Times what was thought: a rate that is no lower changes no price by more than an answer may be off."""
_Moved: TypeAlias = tuple[int, int, int, int, Shape, Behind | None]
"""Two nodes, the array of a result, the place of an operand, what moves, and with what behind the computation."""


@dataclass(eq=False)
class ProgramChoices:
    """All nodes and edges of a step on a mesh of devices; `batch`: numbers of the arguments that are new to each step.

    >>> import hlosharding as hs
    >>> from hlosharding.partitioner import Prices
    >>> module = hs.load('''HloModule m
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0)
    ...   w = f32[4,6] parameter(1)
    ...   y = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ...   ROOT z = f32[8,6] tanh(y)
    ... }''')
    >>> prices = Prices(hs.machines.h100(2))
    >>> choices = ProgramChoices(module, TileAssignment.from_iota((2,)), prices, {0})
    >>> [len(node.compute) for node in choices.nodes], [(edge.first, edge.second) for edge in choices.edges]
    ([4, 3, 3, 3], [(1, 0), (2, 0), (0, 3)])
    """

    module: Module
    mesh: TileAssignment
    prices: Prices
    batch: Collection[int] = ()
    donated: Collection[int] = ()
    """Numbers of the arguments that the update may overwrite."""
    nodes: list[Node] = field(default_factory=list[Node])
    of_class: dict[int, int] = field(default_factory=dict[int, int])
    """By number of a class, its node."""
    of_copy: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    """By value, of those alike in layers one, the node of the copy that its readers share."""
    of_op: dict[Instruction, int] = field(default_factory=dict[Instruction, int])
    """By op, likewise, the node of its split."""
    rate: float = 1.0
    """Of that of products, which the chip's power sustains."""

    def __post_init__(self) -> None:
        is_large = sum(1 for _ in self.module.instructions) > _CHOSEN_APART
        alike = alike_in_layers(self.module) if is_large else []
        self.like = {inst: (row[len(row) // 2], len(row)) for row in alike for inst in row}
        """Of what is in a layer, that of a middle one, for which the choice is made, and for how many."""
        self.classes = ValueClasses(self.module, alike)
        self._edges = dict[_Moved, Edge]()
        self._copied = set[Instruction]()
        """Values that have an edge to their copy."""
        self.table, self.seconds = ReshardTable(self.prices), OpSeconds(self.module, self.prices.machine)
        self.updated, self._runs = find_updated(self.module), executions(self.module)
        self._overlapped = Overlapped.of(self.module, self.classes, self.batch)
        for inst in self.classes.order:
            # A copy has the class of its operand (`ValueClasses`): there is nothing to choose or to price.
            if inst.opcode in ELEMENTWISE and inst.opcode != "copy":
                self._add_elementwise(inst)
            elif inst.opcode not in _PASSED_ON:
                self._add_op(inst)
        # The next step reads what this one gives back, so it has to get where the argument lies.
        for result, parameter in self.updated.items():
            self._connect_values(result, self.node_of(parameter, 0))

    @property
    def edges(self) -> list[Edge]:
        """What moves between the nodes."""
        return list(self._edges.values())

    def problem(self, weights: Weights, memory: float) -> SelectionProblem:
        """What is to be solved, where devices have so many bytes."""
        seconds, least_bytes = self.table.seconds, self.table.least_bytes
        tables = [
            (weights.hidden if edge.behind else 1.0)
            * self._moving(edge, seconds[edge.reshards], least_bytes[edge.reshards])
            for edge in self.edges
        ]
        slower = 1 / self.rate - 1
        computing = [node.compute + slower * node.products for node in self.nodes]
        costs = [weights.compute * each + held for each, held in zip(computing, self._holding, strict=True)]
        buffers = [b for b in self._buffers if b.shape.byte_size > _SMALL * memory]
        owners = [self.of_class[self.classes.find(buffer.number)] for buffer in buffers]
        return SelectionProblem(
            tuple(costs),
            np.array([(edge.first, edge.second) for edge in self.edges], np.int64).reshape(-1, 2),
            tuple(tables),
            np.array(owners, np.int64),
            np.array([(b.first, b.last + 1) for b in buffers], np.int64).reshape(-1, 2),
            tuple(_bytes_of(b.shape, self.nodes[owner].placements) for b, owner in zip(buffers, owners, strict=True)),
            np.full(1 + max((buffer.last for buffer in buffers), default=0), memory),
        )

    def plan_reshards(self, chosen: Integers) -> int:
        """Plan the reshards that choices need; where one takes longer than its bound said, those that might take its
        place, too.  How many were planned."""
        before = self.table.seconds
        at = [(edge.reshards, chosen[edge.first], chosen[edge.second]) for edge in self.edges]
        count = self.table.plan({int(numbers[i, j]) for numbers, i, j in at})
        risen = self.table.seconds > before * _RISEN
        beside = {
            n for numbers, i, j in at if risen[numbers[i, j]] for n in (*numbers[i].tolist(), *numbers[:, j].tolist())
        }
        return count + self.table.plan(beside)

    def spent(self, chosen: Integers) -> Spent:
        """Seconds of a step by these choices."""
        compute, products = self._computing(chosen)
        moved, seconds, least_bytes = {False: 0.0, True: 0.0}, self.table.seconds, self.table.least_bytes
        for edge in self.edges:
            number = edge.reshards[chosen[edge.first], chosen[edge.second]]
            moved[edge.behind is not None] += float(self._moving(edge, seconds[number], least_bytes[number]))
        slower = 1 / self._rate_of(compute, products) - 1
        return Spent(self.others_s + compute + slower * products, moved[False], moved[True])

    def slow_down(self, chosen: Integers) -> None:
        """Less power may be left for products than was thought, if these are the choices: that is known from now on."""
        rate = self._rate_of(*self._computing(chosen))
        # The rate only falls, so prices only rise: by that `_Run._solve` ends.
        if rate < self.rate * _FALLEN:
            self.rate = rate

    def _rate_of(self, compute: float, products: float) -> float:
        """Of products that take so much of a step, as `rate`."""
        return sustained_rate(self.prices.machine, products / compute if compute else 0.0)

    @cached_property
    def others_s(self) -> float:
        """Seconds of what there is no choice for: single elements, and what the partitioner makes anew."""
        elements = (op for op in self.classes.order if op.opcode in ELEMENTWISE and op.shape.size > 1)
        ops = (op for op in self.classes.order if self._like(op)[0] in self.of_op)
        return self.seconds.of_others({op.name for op in (*elements, *ops)})

    def _computing(self, chosen: Integers) -> tuple[float, float]:
        """Seconds at full power, and those of them in products."""
        at = list(zip(self.nodes, chosen.tolist(), strict=True))
        products = (np.broadcast_to(node.products, node.compute.shape)[choice] for node, choice in at)
        return sum(float(node.compute[choice]) for node, choice in at), float(sum(products))

    def _moving(self, edge: Edge, seconds: Numbers, least_bytes: Numbers) -> Numbers:
        """Of a step, what reshards take there that take so long alone."""
        if edge.behind is None:
            return edge.trips * seconds
        # XLA's combiner joins up to so many bytes; what is larger by itself goes alone.
        times = max(1.0, min(MOST_BYTES, self._bytes_behind[edge.behind]) / edge.nbytes)
        return edge.trips * seconds * self.table.share_joined(least_bytes, times)

    @cached_property
    def _bytes_behind(self) -> Mapping[Behind, int]:
        """What may be moved together behind the computation."""
        found = Counter[Behind]()
        for edge in self.edges:
            if edge.behind is not None:
                found[edge.behind] += edge.nbytes
        return found

    def shardings(self, chosen: Integers) -> dict[Instruction, HloSharding]:
        """Of every array by these choices, but for single elements and what each device makes for itself."""
        found: dict[Instruction, HloSharding] = {}
        for inst in self.classes.order:
            node = self.of_class.get(self.classes.of(inst)[0]) if inst.shape.is_array else None
            if node is not None and inst.shape.size > 1:
                found[inst] = self.nodes[node].placements[chosen[node]]
        return found

    def find_examples(self) -> list[Instruction]:
        """The arguments that are new to each step; where nobody knows these, those that it does not update."""
        updated = set(self.updated.values())
        arguments = self.module.entry.parameters
        is_new = [p.parameter_number in self.batch if self.batch else p not in updated for p in arguments]
        return [p for p, new in zip(arguments, is_new, strict=True) if new and (self.batch or updated)]

    # ---- nodes

    def node_of(self, inst: Instruction, leaf: int) -> int:
        """The node of the class of an array."""
        found = self.classes.of(inst)[leaf]
        if found not in self.of_class:
            placements = self._placements(inst, leaf)
            self.of_class[found] = self._new(Node(np.zeros(len(placements)), placements))
        return self.of_class[found]

    def _placements(self, inst: Instruction, leaf: int) -> tuple[HloSharding, ...]:
        """How an array may lie: as the user says, where he does."""
        said, open_dims = self._said.get(self.classes.of(inst)[leaf], (None, ()))
        if said is not None and not open_dims:
            return (said,)
        placements = even_placements(inst.shape.leaves[leaf].dims, self.mesh)
        if said is None:
            return placements
        # `as_compared` spells equal shardings alike, and what is spelled alike is one object.  The user's own tiles may
        # be uneven: then there are no others.
        return tuple(each for each in placements if as_compared(replicate_on_dims(each, open_dims)) is said) or (said,)

    @cached_property
    def _said(self) -> dict[int, tuple[HloSharding, tuple[int, ...]]]:
        """By number of a class, how the user wants it, and which dims that leaves open, here whole."""
        found = dict[int, tuple[HloSharding, tuple[int, ...]]]()
        for inst in self.classes.order:
            sharding = self.module.sharding(inst) if inst.shape.is_array else None
            if sharding is not None and not sharding.is_unknown():
                open_dims = open_dims_of(inst)
                found[self.classes.of(inst)[0]] = as_compared(replicate_on_dims(sharding, open_dims)), open_dims
        return found

    def _new(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _add_elementwise(self, inst: Instruction) -> None:
        if inst.shape.size == 1:
            return
        like, count = self._like(inst)
        if like is inst:
            node = self.nodes[self.node_of(inst, 0)]
            seconds = np.array([self.seconds.of_part(inst, place) for place in node.placements])
            node.compute = node.compute + count * self._trips(inst) * seconds
        # What an op reads twice, as in x * x, moves once.
        for operand in dict.fromkeys(inst.operands):
            if self._is_moved(operand):
                self._connect_values(operand, self.node_of(inst, 0))

    def _add_op(self, inst: Instruction) -> None:
        if not all(leaf.is_array for leaf in inst.shape.leaves):
            return
        op = self._op_node(*self._like(inst))
        for place, operand in enumerate(inst.operands):
            if self._is_moved(operand):
                early = self._behind(operand, is_late=False)
                self._connect(self._read_at(operand, inst), op, operand, early, place=place)
        for leaf, shape in enumerate(inst.shape.leaves):
            if shape.size > 1:
                self._connect(op, self.node_of(inst, leaf), inst, self._behind(inst, leaf, is_late=True), leaf=leaf)

    def _like(self, inst: Instruction) -> tuple[Instruction, int]:
        """The instruction for which the choice is made, and for how many."""
        return self.like.get(inst, (inst, 1))

    def _op_node(self, inst: Instruction, count: int) -> int:
        if inst not in self.of_op:
            splits = self._splits(inst)
            seconds = np.array([self.seconds.of_split(inst, split) for split in splits])
            products = np.array([self.seconds.of_product(inst, split) for split in splits])
            times = count * self._trips(inst)
            self.of_op[inst] = self._new(Node(times * seconds, splits=tuple(splits), products=times * products))
        return self.of_op[inst]

    def _splits(self, inst: Instruction) -> list[OpSplit]:
        """Those that the partitioner has one collective for: custom reductions it gathers."""
        signature = signature_of(inst)
        if not isinstance(signature, Signature):
            return [_on_all_devices(inst)]
        return [split for split in every_split(inst, signature, self.mesh) if split.reduce_kind != "other"]

    def _is_moved(self, operand: Instruction) -> bool:
        is_free = operand.shape.is_array and self.classes.leaves[operand][0] in self.classes.free
        return operand.shape.is_array and operand.shape.size > 1 and not is_free

    def _read_at(self, value: Instruction, reader: Instruction) -> int:
        """Where an op reads a value: in a copy that it shares with others, which move it but once."""
        readers = [user for user in value.users if user.opcode not in ELEMENTWISE | PACKS | PART_READERS]
        if len(readers) < 2 or reader.opcode in PART_READERS:
            return self.node_of(value, 0)
        like, _ = self._like(value)
        if like not in self.of_copy:
            placements = self.nodes[self.node_of(value, 0)].placements
            self.of_copy[like] = self._new(Node(np.zeros(len(placements)), placements))
        if value not in self._copied:
            self._copied.add(value)
            self._connect_values(value, self.of_copy[like])
        return self.of_copy[like]

    # ---- edges

    def _connect_values(self, value: Instruction, target: int) -> None:
        source = self.node_of(value, 0)
        if source != target:
            behind = self._behind(value, is_late=False) or self._behind(value, is_late=True)
            self._connect(source, target, value, behind)

    def _behind(self, value: Instruction, leaf: int = 0, *, is_late: bool) -> Behind | None:
        """With what an array of a value moves, if that may run behind the computation."""
        numbers = self._overlapped.late if is_late else self._overlapped.early
        return Behind(value.computation, is_late) if self.classes.leaves[value][leaf] in numbers else None

    def _connect(
        self, first: int, second: int, moved: Instruction, behind: Behind | None, leaf: int = 0, place: int = 0
    ) -> None:
        """An array of an instruction's result goes from one node to another: where several do alike, it is one edge."""
        shape = moved.shape.leaves[leaf]
        key = first, second, leaf, place, shape, behind
        edge = self._edges.get(key)
        if edge is None:
            reshards = self.table.numbers(shape, self.nodes[first].gives(leaf), self.nodes[second].takes(place))
            edge = Edge(first, second, reshards, 0, shape.byte_size, behind)
        self._edges[key] = edge._replace(trips=edge.trips + self._trips(moved))

    def _trips(self, inst: Instruction) -> int:
        return self._runs[inst.computation].count

    # ---- memory

    @cached_property
    def _buffers(self) -> list[Buffer]:
        """Those that there is a choice for."""
        overwritten = {r for r, p in self.updated.items() if p.parameter_number in self.donated}
        hidden = set(filter(self.seconds.is_hidden, self.classes.order))
        found = find_buffers(self.classes, self.module.entry.root, hidden, overwritten)
        return [buffer for buffer in found if self.classes.find(buffer.number) in self.of_class]

    @property
    def most_held(self) -> float:
        """By how much the price of holding arguments may raise the least cost."""
        return sum(float(np.max(held)) for held in self._holding)

    @cached_property
    def _holding(self) -> list[Numbers | float]:
        """[node][choice]: of arguments the price of holding them."""
        found = list[Numbers | float]([0.0] * len(self.nodes))
        for parameter in self.module.entry.parameters:
            node = self.of_class.get(self.classes.of(parameter)[0]) if parameter.shape.is_array else None
            if node is not None:
                held = _bytes_of(parameter.shape, self.nodes[node].placements)
                found[node] = found[node] + _HELD * held / self.prices.machine.memory_bandwidth
        return found


def _bytes_of(shape: Shape, placements: Sequence[HloSharding]) -> Numbers:
    """[placement]: bytes of a tile."""
    return np.array([shape.byte_size / place.num_tiles for place in placements])


def _on_all_devices(inst: Instruction) -> OpSplit:
    """What nobody knows how to split."""
    every = [(REPLICATED,) * len(of) for of in (inst.operands, inst.shape.leaves)]
    return OpSplit(REPLICATED, every[0], every[1], None, 1.0)
