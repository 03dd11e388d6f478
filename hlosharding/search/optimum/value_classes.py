"""Which arrays of a program lie alike whatever is chosen: what ops on elements make of each other, what loops carry.

Floor: search.  Looks at instructions alone.

    h = dot(x, w); g = tanh(h); m = g * h      h, g and m are one class, and one choice
    while (i, acc): acc = acc + ...            what goes in, the carry, what comes out, and what is added to it
    layers in a list                           of each the same, as if they were the trips of a loop

Arguments are classes of their own, with what a loop hands on of them unchanged: an op on elements may read an argument
that lies elsewhere (moments that are split, beside weights that are whole).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import count

from hlosharding.ir import ELEMENTWISE, GENERATORS, Computation, Instruction, Module, while_parts

_PASSES_ON = frozenset({"copy", "opt-barrier"})
Leaves = tuple[int, ...]
"""Of an instruction's result, by array: the number of a class (`ValueClasses.find` says which it became)."""


class ValueClasses:
    """The classes of all arrays in the computations that a module runs; `alike`: instructions that lie alike, too.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0)
    ...   y = f32[8,4] tanh(x)
    ...   z = f32[8,4] multiply(y, y)
    ...   ROOT r = f32[4,8] transpose(z), dimensions={1,0}
    ... }''')
    >>> classes = ValueClasses(module)
    >>> [classes.of(module.by_name(name)) for name in "xyzr"]
    [(0,), (1,), (1,), (3,)]
    """

    def __init__(self, module: Module, alike: Iterable[Sequence[Instruction]] = ()) -> None:
        from networkx.utils import UnionFind

        self._numbers = count()
        self._classes: UnionFind[int] = UnionFind()
        self.leaves: dict[Instruction, Leaves] = {}
        """Of every instruction that is run."""
        self.order: list[Instruction] = []
        """As they are run, bodies of loops once, ahead of the loop."""
        self.arguments: set[int] = set()
        """Classes of the program's arguments."""
        self.free: set[int] = set()
        """Numbers of what each device makes for itself: constants, iota, what is broadcast of one element."""
        self.handed_on: list[tuple[int, int]] = []
        """What a trip of a loop makes, and the carry that it is in the next one."""
        parameters = [self._new(p) for p in module.entry.parameters]
        self.arguments.update(number for leaves in parameters for number in leaves)
        self._walk(module.entry, parameters)
        for one, *others in alike:
            for other in others:
                self._join_all(self.leaves[one], self.leaves[other])

    def find(self, number: int) -> int:
        """The class that a number belongs to."""
        return self._classes[number]

    def of(self, inst: Instruction) -> Leaves:
        """The class of each array of an instruction's result."""
        return tuple(map(self.find, self.leaves[inst]))

    def _new(self, inst: Instruction) -> Leaves:
        return tuple(next(self._numbers) for _ in inst.shape.leaves)

    def _join_all(self, one: Leaves, other: Leaves) -> None:
        for first, second in zip(one, other, strict=True):
            self._classes.union(first, second)

    def _walk(self, computation: Computation, parameters: Sequence[Leaves]) -> Leaves:
        """Number all that a computation makes of parameters of these classes; those of its root."""
        if computation.root in self.leaves:  # it is called again: what all calls hand over lies alike
            for parameter in computation.parameters:
                handed, known = parameters[parameter.parameter_number], self.leaves[parameter]
                # What the first call had made there, the devices do not make for this one.
                self.free.difference_update(k for k, h in zip(known, handed, strict=True) if h not in self.free)
                self._meet(known, handed)
            return self.leaves[computation.root]
        for inst in computation.instructions:
            self.leaves[inst] = parameters[inst.parameter_number] if inst.opcode == "parameter" else self._made(inst)
            self.order.append(inst)
        return self.leaves[computation.root]

    def _carried(self, leaves: Leaves) -> Leaves:
        """What a loop carries: zeros with which several carries start lie as each of these does."""
        return tuple(next(self._numbers) if number in self.free else number for number in leaves)

    def _meet(self, one: Leaves, other: Leaves) -> Leaves:
        """What is one or the other, each time: both lie alike; what each device makes for itself lies as the other."""
        pairs = [sorted(pair, key=self.free.__contains__) for pair in zip(one, other, strict=True)]
        for first, second in pairs:
            if second not in self.free:
                self._classes.union(first, second)
        return tuple(first for first, _ in pairs)

    def _made(self, inst: Instruction) -> Leaves:
        operands = [self.leaves[operand] for operand in inst.operands]
        match inst.opcode:
            case "tuple":
                return tuple(number for leaves in operands for number in leaves)
            case "get-tuple-element":
                ends = inst.operands[0].shape.first_leaves[inst.tuple_index : inst.tuple_index + 2]
                return operands[0][slice(*ends)]
            case "while":
                parts, carried = while_parts(inst), self._carried(operands[0])
                handed = self._walk(parts.body, [carried])
                self._meet(carried, handed)
                self.handed_on += zip(handed, carried, strict=True)
                self._walk(parts.condition, [carried])
                return carried
            case "call":
                return self._walk(inst.called[0], operands)
            case "conditional":
                return reduce(self._meet, map(self._walk, inst.called, ([given] for given in operands[1:])))
            case opcode if opcode in _PASSES_ON:
                return operands[0]
            case _:
                return self._computed(inst)

    def _computed(self, inst: Instruction) -> Leaves:
        made = self._new(inst)
        if inst.opcode in GENERATORS or (inst.opcode == "broadcast" and inst.operands[0].shape.size == 1):
            self.free.update(made)
        for number in self._alike(inst):
            self._classes.union(made[0], number)
        return made

    def _alike(self, inst: Instruction) -> Iterator[int]:
        """The operands that lie as the result does."""
        alike = inst.operands if inst.opcode in ELEMENTWISE else ()
        # It is written in place: where the buffer lies, whatever the slice does.
        alike = inst.operands[:1] if inst.opcode == "dynamic-update-slice" else alike
        for operand in alike:
            [number] = self.leaves[operand]
            is_bound = number in self.arguments or number in self.free
            if operand.shape.dims == inst.shape.dims and not is_bound:
                yield number
