"""The list of HLO opcodes and the families that passes ask about.  An opcode is XLA's own name, a plain string.

Floor: ir.  A family is a fact about what an op computes, never about how it is sharded.
"""

from __future__ import annotations

ELEMENTWISE_UNARY = frozenset(
    "abs acos acosh asin asinh atanh bitcast-convert cbrt ceil convert copy cosine cosh count-leading-zeros erf"
    " exponential exponential-minus-one floor imag is-finite log log-plus-one logistic negate not popcnt real"
    " reduce-precision round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh".split()
)
ELEMENTWISE_BINARY = frozenset(
    "add and atan2 compare complex divide maximum minimum mulhi multiply or power remainder shift-left"
    " shift-right-arithmetic shift-right-logical stochastic-convert subtract xor".split()
)
ELEMENTWISE_TERNARY = frozenset({"clamp", "select"})
ELEMENTWISE = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | ELEMENTWISE_TERNARY
TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan2 atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one"
    " logistic power rsqrt sine sinh sqrt tan tanh".split()
)
"""Elementwise ops that a processor approximates: some say how closely."""
COLLECTIVES = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all reduce-scatter".split()
)
COLLECTIVES_AND_STARTS = COLLECTIVES | {f"{opcode}-start" for opcode in COLLECTIVES}
"""Ops in which devices meet; `collective_kind` says in which collective."""
ASYNC = frozenset(
    "all-gather-done all-gather-start all-reduce-done all-reduce-start async-done async-start async-update"
    " collective-permute-done collective-permute-start copy-done copy-start recv recv-done send send-done".split()
)
CONTROL_FLOW = frozenset({"call", "conditional", "while"})
PACKS = frozenset({"get-tuple-element", "tuple"})
"""They put values together, or take them apart."""
GENERATORS = frozenset({"constant", "iota"})
"""Made of nothing: each device can make what it needs of them."""
DEVICE_NUMBERS = frozenset({"partition-id", "replica-id"})
PRODUCTS = frozenset({"convolution", "dot", "ragged-dot"})
INDEXED = frozenset({"gather", "scatter"})
RENAMES = frozenset({"bitcast", "reshape"})
"""They give a value another name: there, or not, as the value is."""
SAME_ELEMENTS = RENAMES | {"convert", "copy", "transpose"}
"""All elements of one operand, in another type, shape or order."""
REARRANGES = frozenset(
    "broadcast concatenate dynamic-slice dynamic-update-slice gather pad reshape reverse slice transpose".split()
)
"""They put elements of their operands elsewhere, and compute none."""
FIRST_INDEX = {"dynamic-slice": 1, "dynamic-update-slice": 2}
"""The operand that holds the first start index."""
SIDE_EFFECTS = frozenset(
    {"infeed", "outfeed", "recv", "recv-done", "rng", "rng-get-and-update-state", "send", "send-done"}
)
SIDE_EFFECTS_IN_XLA = SIDE_EFFECTS | frozenset(
    "all-gather-done all-gather-start all-reduce-done all-reduce-start collective-broadcast collective-permute-done"
    " collective-permute-start".split()
)
"""By XLA's HasSideEffect, whatever else it asks of an op."""
_OTHER = frozenset(
    "add-dependency after-all batch-norm-grad batch-norm-inference batch-norm-training bitcast broadcast cholesky"
    " concatenate constant convolution custom-call domain dot dynamic-reshape dynamic-slice dynamic-update-slice fft"
    " fusion gather get-dimension-size get-tuple-element infeed iota map opt-barrier outfeed pad parameter"
    " partition-id ragged-dot reduce reduce-window replica-id reshape reverse rng rng-bit-generator"
    " rng-get-and-update-state scan scatter select-and-scatter set-dimension-size slice sort topk transpose"
    " triangular-solve tuple".split()
)
ALL_OPCODES = ELEMENTWISE | COLLECTIVES | ASYNC | CONTROL_FLOW | _OTHER
NUM_OPERANDS = {
    **dict.fromkeys(ELEMENTWISE_UNARY, 1),
    **dict.fromkeys(ELEMENTWISE_BINARY, 2),
    **dict.fromkeys(ELEMENTWISE_TERNARY, 3),
    **dict.fromkeys("constant iota parameter partition-id replica-id rng-get-and-update-state".split(), 0),
    **dict.fromkeys(
        "all-gather-done all-reduce-done async-done async-update bitcast broadcast cholesky collective-permute-done"
        " copy-done copy-start domain fft get-dimension-size get-tuple-element infeed opt-barrier recv recv-done"
        " reshape reverse rng-bit-generator send-done slice topk transpose while".split(),
        1,
    ),
    **dict.fromkeys(
        "add-dependency convolution dot gather outfeed pad send set-dimension-size triangular-solve".split(), 2
    ),
    **dict.fromkeys("batch-norm-training ragged-dot select-and-scatter".split(), 3),
    **dict.fromkeys("batch-norm-grad batch-norm-inference".split(), 5),
    "ragged-all-to-all": 6,
}
"""How many operands an op has; any number where it does not stand here."""


def collective_kind(opcode: str) -> str | None:
    """The collective that an opcode is or starts, or None.

    >>> collective_kind("all-gather-start"), collective_kind("all-gather-done")
    ('all-gather', None)
    """
    kind = opcode.removesuffix("-start")
    return kind if kind in COLLECTIVES else None
