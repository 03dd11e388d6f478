"""Which values a fusing compiler never writes to memory: the difference between HLO as text and HLO as kernels.

Floor: cost.  A guess in the spirit of XLA's instruction fusion, the same for every program: cheap producers disappear
into the kernels that read them.  A module that XLA has fused already is taken as it stands.
"""

from __future__ import annotations

from hlosharding.cost.work import TRANSCENDENTAL
from hlosharding.ir import ELEMENTWISE, Computation, Instruction, Module

_LAYOUT = frozenset({"bitcast", "reshape", "transpose"})
_PART = frozenset({"broadcast", "dynamic-slice", "iota", "reverse", "slice"})
_CHEAP = (ELEMENTWISE - TRANSCENDENTAL) | _LAYOUT | _PART
_ONCE = TRANSCENDENTAL | frozenset({"concatenate", "gather", "pad", "copy", "divide", "remainder"})
"""Fused where there is a single reader; nobody computes these twice."""
_CONSUMERS = _CHEAP | _ONCE | frozenset({"reduce", "dynamic-update-slice", "scatter", "map"})
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
_READS_LAYOUT = frozenset({"dot", "convolution"})
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
    return {i for i in computation.instructions if i is not root and _disappears(i)}


def _disappears(i: Instruction) -> bool:
    opcode, users = i.opcode, i.users
    if opcode == "constant":
        return not i.shape.dims
    if not users or (opcode not in _CHEAP and opcode not in _ONCE):
        return False
    if opcode in _ONCE and len(users) > 1:
        return False
    for user in users:
        reader = user.opcode
        if reader in _CONSUMERS:
            if reader in _IN_PLACE and user.operands[0] is i:
                return False
        elif not (opcode in _LAYOUT and reader in _READS_LAYOUT):
            return False
    return True
