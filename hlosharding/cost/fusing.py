"""Which values a fusing compiler never writes to memory: the difference between HLO as text and HLO as kernels.

Floor: cost.  A guess in the spirit of XLA's instruction fusion, the same for every program: cheap producers disappear
into the kernels that read them.  A module that XLA has fused already is taken as it stands.
"""

from __future__ import annotations

from hlosharding.cost.work import TRANSCENDENTAL
from hlosharding.ir import ELEMENTWISE, Computation, Instruction, Module

_NAMES = frozenset({"bitcast", "reshape"})
"""Other names for a value: there or not as the value is."""
_PART = frozenset({"broadcast", "dynamic-slice", "iota", "reverse", "slice", "transpose"})
_CHEAP = (ELEMENTWISE - TRANSCENDENTAL) | _PART
_ONCE = TRANSCENDENTAL | frozenset({"concatenate", "copy", "divide", "gather", "pad", "remainder"})
"""Fused where there is a single reader; nobody computes these twice."""
_READERS = _CHEAP | _ONCE | frozenset({"dynamic-update-slice", "map", "reduce", "scatter"})
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
_READS_TRANSPOSED = frozenset({"convolution", "dot"})
"""Products read their operands in any layout."""


def is_fused(module: Module) -> bool:
    """Has XLA fused this module already?"""
    return any(i.opcode == "fusion" for i in module.instructions)


def absorbed(computation: Computation) -> set[Instruction]:
    """Instructions whose values need no memory of their own.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (8,)))
    >>> y = main.add("negate", x.shape, (x,))
    >>> z = main.add("abs", x.shape, (y,))
    >>> _ = b.finish(main)
    >>> [i.name for i in absorbed(main.computation)]
    ['negate']
    """
    root = computation.root
    hidden: set[Instruction] = set()
    for i in computation.instructions:
        if i is root:
            continue
        if i.opcode in _NAMES:
            if i.operands[0] in hidden:
                hidden.add(i)
        elif _disappears(i, root):
            hidden.add(i)
    return hidden


def _disappears(i: Instruction, root: Instruction) -> bool:
    opcode = i.opcode
    if opcode == "constant":
        return not i.shape.dims
    if opcode not in _CHEAP and opcode not in _ONCE:
        return False
    readers = 0
    stack = [(i, user) for user in i.users]
    while stack:
        value, user = stack.pop()
        if user.opcode in _NAMES:
            if user is root:
                return False
            stack += [(user, further) for further in user.users]
        elif _reads_in_kernel(user, value, opcode):
            readers += 1
        else:
            return False
    return readers == 1 if opcode in _ONCE else readers > 0


def _reads_in_kernel(reader: Instruction, value: Instruction, opcode: str) -> bool:
    if reader.opcode in _READERS:
        return not (reader.opcode in _IN_PLACE and reader.operands[0] is value)
    return opcode == "transpose" and reader.opcode in _READS_TRANSPOSED
