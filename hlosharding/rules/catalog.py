"""The table: every opcode on one page, as a rule, as data flow, or as opaque with a reason.

Floor: rules.  Answers are remembered: for equal ops (`attributes_of`) on equal shapes they are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from hlosharding.ir import ELEMENTWISE, Instruction, attributes_of, reducer_kind
from hlosharding.registry import Registry
from hlosharding.rules import contractions, elementwise, indexing, layouts, reductions, special, windows
from hlosharding.rules.custom_calls import custom_call
from hlosharding.rules.signature import DataFlow, Opaque, Signature

Relation: TypeAlias = Signature | DataFlow | Opaque


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule and what, beside opcode and shapes, its answer depends on."""

    rule: Callable[[Instruction], Relation]
    key: Callable[[Instruction], Any] = attributes_of


def _with_reducer(inst: Instruction) -> Any:
    return reducer_kind(inst.called[0]), attributes_of(inst)


catalog: Registry[str, RuleRow | DataFlow | Opaque] = Registry("the catalog of opcodes")

_RULES: dict[str, RuleRow] = {
    # moving elements
    "bitcast-convert": RuleRow(elementwise.bitcast_convert),
    "broadcast": RuleRow(layouts.broadcast),
    "concatenate": RuleRow(layouts.concatenate),
    "iota": RuleRow(layouts.iota),
    "pad": RuleRow(windows.pad),
    "reshape": RuleRow(layouts.reshape),
    "reverse": RuleRow(layouts.reverse),
    "slice": RuleRow(windows.slice_),
    "transpose": RuleRow(layouts.transpose),
    # made from nothing
    "constant": RuleRow(elementwise.constant, elementwise.is_splat),
    "rng": RuleRow(elementwise.pointwise),
    "rng-bit-generator": RuleRow(special.random_bits),
    # contracting and folding
    "convolution": RuleRow(contractions.convolution),
    "dot": RuleRow(contractions.dot),
    "ragged-dot": RuleRow(contractions.ragged_dot),
    "reduce": RuleRow(reductions.reduce, _with_reducer),
    "reduce-window": RuleRow(windows.reduce_window),
    "select-and-scatter": RuleRow(windows.select_and_scatter),
    "sort": RuleRow(reductions.sort),
    "topk": RuleRow(reductions.topk),
    # addressing by index
    "dynamic-slice": RuleRow(indexing.dynamic_slice),
    "dynamic-update-slice": RuleRow(indexing.dynamic_update_slice),
    "gather": RuleRow(indexing.gather),
    "scatter": RuleRow(indexing.scatter, _with_reducer),
    # with a meaning of their own
    "batch-norm-grad": RuleRow(special.batch_norm),
    "batch-norm-inference": RuleRow(special.batch_norm),
    "batch-norm-training": RuleRow(special.batch_norm),
    "cholesky": RuleRow(special.cholesky),
    "fft": RuleRow(special.fft),
    "get-dimension-size": RuleRow(special.get_dimension_size),
    "map": RuleRow(elementwise.pointwise),
    "triangular-solve": RuleRow(special.triangular_solve),
    # collectives of a program that already has some
    "all-gather": RuleRow(special.resizing),
    "all-reduce": RuleRow(elementwise.pointwise),
    "all-to-all": RuleRow(special.all_to_all),
    "collective-broadcast": RuleRow(elementwise.pointwise),
    "collective-permute": RuleRow(elementwise.pointwise),
    "reduce-scatter": RuleRow(special.resizing),
}

_DATA_FLOW = {
    "add-dependency": "pass",
    "after-all": "order",
    "async-done": "async",
    "async-start": "async",
    "async-update": "async",
    "call": "call",
    "conditional": "conditional",
    "copy-done": "async",
    "copy-start": "async",
    "domain": "pass",
    "get-tuple-element": "get-tuple-element",
    "opt-barrier": "pass",
    "parameter": "parameter",
    "tuple": "tuple",
    "while": "while",
}

_HOST = "it exchanges whole values with the host or another program"
_LATER = "it exists only in modules that were compiled already, where nothing is sharded any more"
_DYNAMIC = "its result's size is known only at run time"
_OPAQUE = {
    "all-gather-done": _LATER,
    "all-gather-start": _LATER,
    "all-reduce-done": _LATER,
    "all-reduce-start": _LATER,
    "bitcast": "it reinterprets memory by layout; it appears only after layouts are assigned",
    "collective-permute-done": _LATER,
    "collective-permute-start": _LATER,
    "dynamic-reshape": _DYNAMIC,
    "fusion": _LATER,
    "infeed": _HOST,
    "outfeed": _HOST,
    "partition-id": "each device has its own value",
    "ragged-all-to-all": "which rows go where is known only at run time",
    "recv": _HOST,
    "recv-done": _HOST,
    "replica-id": "each replica has its own value",
    "rng-get-and-update-state": "it is a state that must advance once for all devices",
    "scan": "it is a loop whose carried and stacked values its one operand list mixes; it runs whole",
    "send": _HOST,
    "send-done": _HOST,
    "set-dimension-size": _DYNAMIC,
}


def _fill() -> None:
    for opcode in sorted(ELEMENTWISE - {"bitcast-convert"}):
        catalog.add(opcode, RuleRow(elementwise.pointwise, lambda _: None))
    # Registered by name so that the table above stays data: targets decide, and users add to them.
    catalog.add("custom-call", RuleRow(custom_call))
    for opcode, row in _RULES.items():
        catalog.add(opcode, row)
    for opcode, kind in _DATA_FLOW.items():
        catalog.add(opcode, DataFlow(kind))
    for opcode, reason in _OPAQUE.items():
        catalog.add(opcode, Opaque(reason))


_fill()
_UNKNOWN = Opaque("no rule knows this opcode")
_answers: dict[Any, Relation] = {}


def signature_of(inst: Instruction) -> Relation:
    """How the dims of an instruction relate: a Signature, DataFlow, or Opaque with the reason.

    Remembered by opcode, shapes and attributes.  Raises RuleError when a user's rule does not fit.

    >>> from hlosharding.ir import Builder, DotDims, Shape
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[8,4]"))
    >>> y = main.add("dot", Shape.parse("f32[8,8]"), (x, x), dot_dims=DotDims((1,), (1,)))
    >>> str(signature_of(y)), signature_of(y).factors[2].owes
    ('m0 k0, n0 k0 -> m0 n0', Reduce(kind='add', once=()))
    """
    row = catalog.get(inst.opcode)
    if row is None:
        return _UNKNOWN
    if not isinstance(row, RuleRow):
        return row
    # Not remembered: users say new rules at any time, and a kernel is known by the scopes around it, which no key has.
    if inst.opcode == "custom-call":
        return row.rule(inst)
    key = (inst.opcode, inst.shape, row.key(inst), *[o.shape for o in inst.operands])
    found = _answers.get(key)
    if found is None:
        found = _answers[key] = row.rule(inst)
    return found
