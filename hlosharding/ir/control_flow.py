"""Who runs whom: the parts of a loop, the branches of a conditional, the call sites of a computation.

Floor: ir.  XLA lists the computations of a while as [body, condition], whatever order the text names them in, and reads
a proto that lists them otherwise as a loop whose body is the condition: `verify` refuses that one.
"""

from __future__ import annotations

from typing import NamedTuple

from hlosharding.ir.graph import Computation, Instruction, ModuleGraph
from hlosharding.once import remembered

NUM_CALLED = dict.fromkeys(
    [
        *("all-reduce", "all-reduce-start", "map", "reduce", "reduce-scatter", "reduce-window", "scatter", "sort"),
        *("async-start", "call", "conditional", "fusion", "scan"),
    ],
    1,
) | {"select-and-scatter": 2, "while": 2}
"""How many computations an op calls; a conditional as many as it has branches."""


class WhileParts(NamedTuple):
    """The two computations of a loop."""

    body: Computation
    condition: Computation


def while_parts(loop: Instruction) -> WhileParts:
    """Body and condition of a while.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... going { p = s32[] parameter(0)  c = s32[] constant(3)  ROOT r = pred[] compare(p, c), direction=LT }
    ... step { p = s32[] parameter(0)  c = s32[] constant(1)  ROOT r = s32[] add(p, c) }
    ... ENTRY e { x = s32[] parameter(0)  ROOT w = s32[] while(x), condition=going, body=step }''')
    >>> while_parts(module.by_name("w")).body.name
    'step'
    """
    return WhileParts(loop.called[0], loop.called[1])


def hands_on(body: Computation, number: int) -> bool:
    """Does each trip of a loop give back an element of the carry as it was given it?

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... going {
    ...   p = (s32[], f32[8]) parameter(0)
    ...   n = s32[] get-tuple-element(p), index=0
    ...   c = s32[] constant(3)
    ...   ROOT r = pred[] compare(n, c), direction=LT
    ... }
    ... step {
    ...   p = (s32[], f32[8]) parameter(0)
    ...   n = s32[] get-tuple-element(p), index=0
    ...   m = s32[] add(n, n)
    ...   w = f32[8] get-tuple-element(p), index=1
    ...   ROOT r = (s32[], f32[8]) tuple(m, w)
    ... }
    ... ENTRY e {
    ...   x = (s32[], f32[8]) parameter(0)
    ...   ROOT loop = (s32[], f32[8]) while(x), condition=going, body=step
    ... }''')
    >>> body = while_parts(module.by_name("loop")).body
    >>> hands_on(body, 0), hands_on(body, 1)
    (False, True)
    """
    if body.root.opcode != "tuple":
        return False
    made = body.root.operands[number]
    is_same = made.opcode == "get-tuple-element" and made.tuple_index == number
    return is_same and made.operands[0] is body.parameters[0]


class Branch(NamedTuple):
    """One way of a conditional, and what it is given there."""

    computation: Computation
    operand: Instruction


def branches(conditional: Instruction) -> tuple[Branch, ...]:
    """The branches of a conditional with their operands: true and false, or by number.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... yes { ROOT p = s32[] parameter(0) }
    ... no { p = s32[] parameter(0)  ROOT r = s32[] negate(p) }
    ... ENTRY e {
    ...   c = pred[] parameter(0)  x = s32[] parameter(1)
    ...   ROOT w = s32[] conditional(c, x, x), true_computation=yes, false_computation=no
    ... }''')
    >>> [(b.computation.name, b.operand.name) for b in branches(module.by_name("w"))]
    [('yes', 'x'), ('no', 'x')]
    """
    return tuple(Branch(c, o) for c, o in zip(conditional.called, conditional.operands[1:], strict=True))


def callers(module: ModuleGraph) -> dict[Computation, list[Instruction]]:
    """The call sites of every computation that is called, each once, in module order.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... f { p = s32[] parameter(0)  ROOT r = s32[] negate(p) }
    ... ENTRY e { x = s32[] parameter(0)  y = s32[] call(x), to_apply=f  ROOT z = s32[] call(y), to_apply=f }''')
    >>> {callee.name: [site.name for site in sites] for callee, sites in callers(module).items()}
    {'f': ['y', 'z']}
    """
    found: dict[Computation, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.called:
                for callee in dict.fromkeys(instruction.called):
                    found.setdefault(callee, []).append(instruction)
    return found


def arguments(site: Instruction, parameter: Instruction) -> tuple[Instruction, ...]:
    """What a call site gives to a parameter: of a loop, the carry at first and in later trips; () where nobody can say.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... f { p = s32[] parameter(0)  ROOT r = s32[] negate(p) }
    ... ENTRY e { x = s32[] parameter(0)  ROOT y = s32[] call(x), to_apply=f }''')
    >>> arguments(module.by_name("y"), module.by_name("p"))
    (%x = s32[] parameter(),)
    """
    match site.opcode:
        case "while":
            return site.operands[0], while_parts(site).body.root
        case "conditional":
            return tuple(b.operand for b in branches(site) if b.computation is parameter.computation)
        case "call" | "fusion" | "async-start":
            return (site.operands[parameter.parameter_number],)
        case _:
            return ()


# ---- who reads the elements of tuples: looked up once for each tuple of a graph that stays as it is
#
# A loop may carry thousands of arrays: to look through all readers of a tuple for each of its elements takes time
# with the square of their number.


Readers = dict[int, list[Instruction]]
"""By an element's number, the get-tuple-elements that take it."""


class ElementReaders:
    """The readers of every tuple that was asked about.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { p = (f32[], s32[]) parameter(0)  ROOT x = f32[] get-tuple-element(p), index=0 }''')
    >>> readers = ElementReaders()
    >>> readers.of(module.by_name("p"), 0), readers.of(module.by_name("p"), 1)
    ([%x = f32[] get-tuple-element(%p)], [])
    >>> readers.is_only(module.by_name("x"))
    True
    """

    def of(self, packed: Instruction, index: int) -> list[Instruction]:
        """The get-tuple-elements that take element `index`."""
        return self._found(packed)[0].get(index, [])

    def is_whole(self, packed: Instruction) -> bool:
        """Is the tuple handed on or given back as a whole, too?"""
        return self._found(packed)[1]

    def is_only(self, element: Instruction) -> bool:
        """Is a tuple's element read by this one instruction, and the tuple not as a whole?"""
        [packed] = element.operands
        return not self.is_whole(packed) and len(self.of(packed, element.tuple_index)) == 1

    @remembered
    def _found(self, packed: Instruction) -> tuple[Readers, bool]:
        readers: Readers = {}
        taken = [user for user in packed.users if user.opcode == "get-tuple-element"]
        for user in taken:
            readers.setdefault(user.tuple_index, []).append(user)
        return readers, packed.is_root or len(taken) < len(packed.users)
