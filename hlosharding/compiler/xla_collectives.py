"""At which op of the whole program a collective of XLA's own stands, and what our program has there.

Floor: compiler.  XLA's partitioner gives a collective the name and the source line of the op that it was made for.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Instruction, Module
from hlosharding.rules import Reduce, Signature, signature_of
from hlosharding.spmd import Collective

_OF_SUMS = frozenset({"all-reduce", "reduce-scatter"})


def adds_up(one: Collective) -> bool:
    """Are partial results added up in it?  XLA does not say: its kind tells."""
    return "partial results" in one.reason if one.reason else one.kind in _OF_SUMS


def op_of_xla(source: Module, ours: Sequence[Collective], theirs: Sequence[Collective], number: int) -> str:
    """Name of the op for which XLA made `theirs[number]`; "" where it names none of `source`.

    Of several of one name and line (layers) those count for which our program has such a collective, too, in order.
    """
    one = theirs[number]
    named = _of_one_line(source, one)
    needing = {each.needed_by for each in ours if adds_up(each) == adds_up(one)}
    fitting = [op for op in named if op.name in needing]
    fitting = fitting or [op for op in named if _reduces(op) == adds_up(one)] or named
    before = sum(_place(each) == _place(one) for each in theirs[:number])
    return fitting[min(before, len(fitting) - 1)].name if fitting else ""


def _of_one_line(source: Module, one: Collective) -> list[Instruction]:
    """Those of its name, too, where there are such.  An op without metadata gives it its own name."""
    if not (one.location or one.op_name):
        return []
    at_line = [op for op in source.instructions if op.location == one.location] if one.location else []
    named = [op for op in at_line or source.instructions if op.op_name == one.op_name] or at_line
    own = source.find(one.op_name)
    return named or ([own] if own is not None else [])


def _reduces(op: Instruction) -> bool:
    signature = signature_of(op)
    return isinstance(signature, Signature) and any(isinstance(factor.owes, Reduce) for factor in signature.factors)


def _place(one: Collective) -> tuple[bool, str, str]:
    return adds_up(one), one.location, one.op_name


def ours_at(op: Instruction, ours: Sequence[Collective]) -> tuple[Collective, ...]:
    """Our collectives for an op; where there are none, those of its line."""
    own = tuple(one for one in ours if one.needed_by == op.name)
    return own or tuple(one for one in ours if one.location and one.location == op.location)
