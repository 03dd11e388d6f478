"""One written HLO module for every opcode: the op between annotated neighbours, so that both directions are seen.

`BODIES[opcode]` is the entry computation; `REGIONS` are computations that several of them call.
"""

from __future__ import annotations

ROWS = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"
COLUMNS = "{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}"
BOTH = "{devices=[2,2]<=[4]}"

REGIONS = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}

%less (c: f32[], d: f32[]) -> pred[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  ROOT %l = pred[] compare(%c, %d), direction=LT
}

%body (s: (f32[8,16], f32[8,16])) -> (f32[8,16], f32[8,16]) {
  %s = (f32[8,16], f32[8,16]) parameter(0)
  %st_a = f32[8,16] get-tuple-element(%s), index=0
  %st_b = f32[8,16] get-tuple-element(%s), index=1
  %st_c = f32[8,16] add(%st_a, %st_b)
  ROOT %st_d = (f32[8,16], f32[8,16]) tuple(%st_c, %st_b)
}

%going (t: (f32[8,16], f32[8,16])) -> pred[] {
  %t = (f32[8,16], f32[8,16]) parameter(0)
  ROOT %yes = pred[] constant(true)
}

%twice (v: f32[8,16]) -> f32[8,16] {
  %v = f32[8,16] parameter(0)
  ROOT %v_2 = f32[8,16] add(%v, %v)
}

%step (e: f32[16], f: f32[16]) -> (f32[16], f32[16]) {
  %e = f32[16] parameter(0)
  %f = f32[16] parameter(1)
  %g = f32[16] add(%e, %f)
  ROOT %h = (f32[16], f32[16]) tuple(%g, %g)
}

%flip (w: f32[8,16]) -> f32[8,16] {
  %w = f32[8,16] parameter(0)
  ROOT %w_2 = f32[8,16] negate(%w)
}

%swap (o: (f32[8,16], f32[8,16])) -> (f32[8,16], f32[8,16]) {
  %o = (f32[8,16], f32[8,16]) parameter(0)
  %o_a = f32[8,16] get-tuple-element(%o), index=0
  %o_b = f32[8,16] get-tuple-element(%o), index=1
  ROOT %o_c = (f32[8,16], f32[8,16]) tuple(%o_a, %o_b)
}
"""


def _words(text: str) -> list[str]:
    return text.split()


_UNARY = _words(
    "abs acos acosh asin asinh atanh cbrt ceil copy cosine cosh erf exponential exponential-minus-one floor"
    " log log-plus-one logistic negate round-nearest-afz round-nearest-even rsqrt sign sine sinh sqrt tan tanh"
)
_BINARY = _words("add atan2 divide maximum minimum multiply power remainder subtract")
_INTEGER_UNARY = _words("count-leading-zeros not popcnt")
_INTEGER_BINARY = _words("and mulhi or xor shift-left shift-right-arithmetic shift-right-logical")


def _around(line: str, result: str = "f32[8,16]", after: str = "copy(%op)", parameters: str = "") -> str:
    """Two annotated inputs, the op, a user without sharding, and a result with one."""
    more = parameters or ""
    return (
        f"  %x = f32[8,16] parameter(0), sharding={ROWS}\n"
        f"  %y = f32[8,16] parameter(1), sharding={COLUMNS}\n"
        f"{more}"
        f"  {line}\n"
        f"  %after = {result} {after}\n"
        f"  ROOT %root = ({result}) tuple(%after)"
    )


BODIES: dict[str, str] = {
    **{op: _around(f"%op = f32[8,16] {op}(%x)") for op in _UNARY},
    **{op: _around(f"%op = f32[8,16] {op}(%x, %y)") for op in _BINARY},
    **{
        op: _around(f"%op = s32[8,16] {op}(%i)", "s32[8,16]", parameters="  %i = s32[8,16] convert(%x)\n")
        for op in _INTEGER_UNARY
    },
    **{
        op: _around(
            f"%op = s32[8,16] {op}(%i, %j)",
            "s32[8,16]",
            parameters="  %i = s32[8,16] convert(%x)\n  %j = s32[8,16] convert(%y)\n",
        )
        for op in _INTEGER_BINARY
    },
    "is-finite": _around("%op = pred[8,16] is-finite(%x)", "pred[8,16]"),
    "compare": _around("%op = pred[8,16] compare(%x, %y), direction=LT", "pred[8,16]"),
    "convert": _around("%op = bf16[8,16] convert(%x)", "bf16[8,16]"),
    "bitcast-convert": _around("%op = s32[8,16] bitcast-convert(%x)", "s32[8,16]"),
    "bitcast": _around("%op = f32[128] bitcast(%x)", "f32[128]"),
    "complex": _around("%op = c64[8,16] complex(%x, %y)", "c64[8,16]"),
    "real": _around("%op = f32[8,16] real(%c)", parameters="  %c = c64[8,16] complex(%x, %y)\n"),
    "imag": _around("%op = f32[8,16] imag(%c)", parameters="  %c = c64[8,16] complex(%x, %y)\n"),
    "reduce-precision": _around("%op = f32[8,16] reduce-precision(%x), exponent_bits=5, mantissa_bits=10"),
    "stochastic-convert": _around(
        "%op = s8[8,16] stochastic-convert(%x, %u)", "s8[8,16]", parameters="  %u = u32[8,16] parameter(2)\n"
    ),
    "select": _around(
        "%op = f32[8,16] select(%p, %x, %y)", parameters="  %p = pred[8,16] compare(%y, %x), direction=LT\n"
    ),
    "clamp": _around("%op = f32[8,16] clamp(%x, %y, %x)"),
    "map": _around("%op = f32[8,16] map(%x, %y), dimensions={0,1}, to_apply=%sum"),
    "parameter": _around("%op = f32[8,16] parameter(2)", after="add(%op, %x)"),
    "constant": _around("%op = f32[8,16] constant({...})", after="add(%op, %x)"),
    "iota": _around("%op = f32[8,16] iota(), iota_dimension=1", after="add(%op, %y)"),
    "broadcast": _around("%op = f32[4,8,16] broadcast(%x), dimensions={1,2}", "f32[4,8,16]"),
    "transpose": _around("%op = f32[16,8] transpose(%x), dimensions={1,0}", "f32[16,8]"),
    "reshape": _around("%op = f32[2,4,16] reshape(%x)", "f32[2,4,16]"),
    "dynamic-reshape": _around(
        "%op = f32[<=8,16] dynamic-reshape(%x, %n, %n)", "f32[<=8,16]", parameters="  %n = s32[] parameter(2)\n"
    ),
    "reverse": _around("%op = f32[8,16] reverse(%x), dimensions={0}"),
    "concatenate": _around("%op = f32[16,16] concatenate(%x, %y), dimensions={0}", "f32[16,16]"),
    "slice": _around("%op = f32[4,16] slice(%x), slice={[0:4], [0:16]}", "f32[4,16]"),
    "pad": _around(
        "%op = f32[10,16] pad(%x, %z), padding=1_1x0_0", "f32[10,16]", parameters="  %z = f32[] constant(0)\n"
    ),
    "dynamic-slice": _around(
        "%op = f32[8,4] dynamic-slice(%x, %n, %n), dynamic_slice_sizes={8,4}",
        "f32[8,4]",
        parameters="  %n = s32[] parameter(2)\n",
    ),
    "dynamic-update-slice": _around(
        "%op = f32[8,16] dynamic-update-slice(%x, %u, %n, %n)",
        parameters=f"  %n = s32[] parameter(2)\n  %u = f32[8,4] parameter(3), sharding={COLUMNS}\n",
    ),
    "reduce": _around(
        "%op = f32[8] reduce(%x, %z), dimensions={1}, to_apply=%sum", "f32[8]", parameters="  %z = f32[] constant(0)\n"
    ),
    "reduce-window": _around(
        "%op = f32[8,16] reduce-window(%x, %z), window={size=3x1 pad=1_1x0_0}, to_apply=%sum",
        parameters="  %z = f32[] constant(0)\n",
    ),
    "select-and-scatter": _around(
        "%op = f32[8,16] select-and-scatter(%x, %u, %z), window={size=2x1 stride=2x1}, select=%less, scatter=%sum",
        parameters="  %z = f32[] constant(0)\n  %u = f32[4,16] parameter(2)\n",
    ),
    "sort": _around("%op = f32[8,16] sort(%x), dimensions={0}, to_apply=%less"),
    "topk": _around(
        "%op = (f32[8,4], s32[8,4]) topk(%x), k=4, largest=true", "f32[8,4]", "get-tuple-element(%op), index=0"
    ),
    "dot": _around(
        "%op = f32[8,8] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "f32[8,8]"
    ),
    "ragged-dot": _around(
        "%op = f32[8,4] ragged-dot(%x, %w, %g), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
        " lhs_ragged_dims={0}, rhs_group_dims={0}",
        "f32[8,4]",
        parameters="  %w = f32[3,16,4] parameter(2)\n  %g = s32[3] parameter(3)\n",
    ),
    "convolution": _around(
        "%op = f32[4,8,16,2] convolution(%i, %k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        "f32[4,8,16,2]",
        parameters="  %i = f32[4,8,16,3] parameter(2), sharding={devices=[1,2,1,1,2]<=[4] last_tile_dim_replicate}\n"
        "  %k = f32[3,3,3,2] parameter(3)\n",
    ),
    "gather": _around(
        "%op = f32[4,16] gather(%x, %n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,16}",
        "f32[4,16]",
        parameters="  %n = s32[4,1] parameter(2), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}\n",
    ),
    "scatter": _around(
        "%op = f32[8,16] scatter(%x, %n, %u), update_window_dims={1}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum",
        parameters="  %n = s32[4,1] parameter(2)\n"
        f"  %u = f32[4,16] parameter(3), sharding={COLUMNS}\n",
    ),
    "tuple": _around(
        "%op = (f32[8,16], f32[8,16]) tuple(%x, %y)", after="get-tuple-element(%op), index=1"
    ),
    "get-tuple-element": _around(
        "%op = f32[8,16] get-tuple-element(%t), index=0",
        parameters="  %t = (f32[8,16], f32[8,16]) tuple(%x, %y)\n",
    ),
    "opt-barrier": _around("%op = f32[8,16] opt-barrier(%x)"),
    "while": _around(
        "%op = (f32[8,16], f32[8,16]) while(%t), condition=%going, body=%body",
        after="get-tuple-element(%op), index=0",
        parameters="  %t = (f32[8,16], f32[8,16]) tuple(%x, %y)\n",
    ),
    "conditional": _around(
        "%op = f32[8,16] conditional(%p, %x, %y), true_computation=%twice, false_computation=%flip",
        parameters="  %p = pred[] parameter(2)\n",
    ),
    "call": _around("%op = f32[8,16] call(%x), to_apply=%twice"),
    "fusion": _around("%op = f32[8,16] fusion(%x), kind=kLoop, calls=%flip"),
    "custom-call": _around('%op = f32[8,16] custom-call(%x), custom_call_target="LayoutConstraint"'),
    "rng": _around(
        "%op = f32[8,16] rng(%l, %h), distribution=rng_uniform", after="add(%op, %x)",
        parameters="  %l = f32[] constant(0)\n  %h = f32[] constant(1)\n",
    ),
    "rng-bit-generator": _around(
        "%op = (u64[2], u32[8,16]) rng-bit-generator(%n), algorithm=rng_philox",
        "u32[8,16]",
        "get-tuple-element(%op), index=1",
        "  %n = u64[2] parameter(2)\n",
    ),
    "rng-get-and-update-state": _around(
        "%op = u64[2] rng-get-and-update-state(), delta=1", "u64[2]"
    ),
    "all-reduce": _around("%op = f32[8,16] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%sum"),
    "all-gather": _around("%op = f32[32,16] all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}", "f32[32,16]"),
    "reduce-scatter": _around(
        "%op = f32[2,16] reduce-scatter(%x), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=%sum", "f32[2,16]"
    ),
    "all-to-all": _around("%op = f32[8,16] all-to-all(%x), replica_groups={{0,1,2,3}}, dimensions={0}"),
    "collective-permute": _around("%op = f32[8,16] collective-permute(%x), source_target_pairs={{0,1},{1,0}}"),
    "collective-broadcast": _around("%op = f32[8,16] collective-broadcast(%x), replica_groups={{0,1,2,3}}"),
    "ragged-all-to-all": _around(
        "%op = f32[8,16] ragged-all-to-all(%x, %y, %n, %n, %n, %n), replica_groups={{0,1,2,3}}",
        parameters="  %n = s32[4] parameter(2)\n",
    ),
    "all-reduce-start": _around(
        "%op = f32[8,16] all-reduce-start(%x), replica_groups={{0,1,2,3}}, to_apply=%sum", after="all-reduce-done(%op)"
    ),
    "all-reduce-done": _around(
        "%op = f32[8,16] all-reduce-done(%q)",
        parameters="  %q = f32[8,16] all-reduce-start(%x), replica_groups={{0,1,2,3}}, to_apply=%sum\n",
    ),
    "all-gather-start": _around(
        "%op = (f32[8,16], f32[32,16]) all-gather-start(%x), replica_groups={{0,1,2,3}}, dimensions={0}",
        "f32[32,16]",
        "all-gather-done(%op)",
    ),
    "all-gather-done": _around(
        "%op = f32[32,16] all-gather-done(%q)",
        "f32[32,16]",
        parameters="  %q = (f32[8,16], f32[32,16]) all-gather-start(%x), replica_groups={{0,1,2,3}}, dimensions={0}\n",
    ),
    "collective-permute-start": _around(
        "%op = (f32[8,16], f32[8,16], u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}",
        after="collective-permute-done(%op)",
    ),
    "collective-permute-done": _around(
        "%op = f32[8,16] collective-permute-done(%q)",
        parameters="  %q = (f32[8,16], f32[8,16], u32[], u32[]) collective-permute-start(%x),"
        " source_target_pairs={{0,1},{1,0}}\n",
    ),
    "copy-start": _around("%op = (f32[8,16], f32[8,16], u32[]) copy-start(%x)", after="copy-done(%op)"),
    "copy-done": _around(
        "%op = f32[8,16] copy-done(%q)", parameters="  %q = (f32[8,16], f32[8,16], u32[]) copy-start(%x)\n"
    ),
    "async-start": _around(
        "%op = ((f32[8,16]), f32[8,16], s32[]) call-start(%x), to_apply=%twice", after="call-done(%op)"
    ),
    "async-update": _around(
        "%op = ((f32[8,16]), f32[8,16], s32[]) call-update(%q)",
        after="call-done(%op)",
        parameters="  %q = ((f32[8,16]), f32[8,16], s32[]) call-start(%x), to_apply=%twice\n",
    ),
    "async-done": _around(
        "%op = f32[8,16] call-done(%q)",
        parameters="  %q = ((f32[8,16]), f32[8,16], s32[]) call-start(%x), to_apply=%twice\n",
    ),
    "send": _around(
        "%op = (f32[8,16], u32[], token[]) send(%x, %k), channel_id=1", "token[]", "send-done(%op), channel_id=1",
        "  %k = token[] after-all()\n",
    ),
    "send-done": _around(
        "%op = token[] send-done(%q), channel_id=1", "token[]", "after-all(%op)",
        "  %k = token[] after-all()\n  %q = (f32[8,16], u32[], token[]) send(%x, %k), channel_id=1\n",
    ),
    "recv": _around(
        "%op = (f32[8,16], u32[], token[]) recv(%k), channel_id=1", "(f32[8,16], token[])",
        "recv-done(%op), channel_id=1", "  %k = token[] after-all()\n",
    ),
    "recv-done": _around(
        "%op = (f32[8,16], token[]) recv-done(%q), channel_id=1", after="get-tuple-element(%op), index=0",
        parameters="  %k = token[] after-all()\n  %q = (f32[8,16], u32[], token[]) recv(%k), channel_id=1\n",
    ),
    "infeed": _around(
        "%op = ((f32[8,16]), token[]) infeed(%k)", "(f32[8,16])", "get-tuple-element(%op), index=0",
        "  %k = token[] after-all()\n",
    ),
    "outfeed": _around(
        "%op = token[] outfeed(%v, %k), outfeed_shape=f32[8,16], sharding={{devices=[2,2]<=[4]}, {maximal device=0}}",
        "token[]", "after-all(%op)",
        "  %z = f32[8,16] parameter(2)\n  %v = f32[8,16] negate(%z)\n  %k = token[] after-all()\n",
    ),
    "after-all": _around("%op = token[] after-all()", "token[]", "after-all(%op)"),
    "add-dependency": _around("%op = f32[8,16] add-dependency(%x, %k)", parameters="  %k = token[] after-all()\n"),
    "domain": _around(
        "%op = f32[8,16] domain(%x), domain={kind=\"sharding\", entry={{devices=[2,2]<=[4]}}, exit={{replicated}}}"
        .replace("{{", "{").replace("}}", "}")
    ),
    "partition-id": _around("%op = u32[] partition-id()", "u32[]"),
    "replica-id": _around("%op = u32[] replica-id()", "u32[]"),
    "get-dimension-size": _around("%op = s32[] get-dimension-size(%x), dimensions={0}", "s32[]"),
    "set-dimension-size": _around(
        "%op = f32[<=8,16] set-dimension-size(%x, %n), dimensions={0}", "f32[<=8,16]",
        parameters="  %n = s32[] parameter(2)\n",
    ),
    "cholesky": _around("%op = f32[4,4] cholesky(%m), lower=true", "f32[4,4]",
        parameters=f"  %m = f32[4,4] parameter(2), sharding={ROWS}\n"),
    "triangular-solve": _around(
        "%op = f32[8,16] triangular-solve(%m, %x), left_side=true, lower=true, unit_diagonal=false,"
        " transpose_a=NO_TRANSPOSE",
        parameters=f"  %m = f32[8,8] parameter(2), sharding={ROWS}\n",
    ),
    "fft": _around(
        "%op = c64[8,16] fft(%c), fft_type=FFT, fft_length={16}", "c64[8,16]",
        parameters="  %c = c64[8,16] complex(%x, %x)\n",
    ),
    "batch-norm-training": _around(
        "%op = (f32[8,16], f32[16], f32[16]) batch-norm-training(%x, %f, %f), epsilon=0.001, feature_index=1",
        after="get-tuple-element(%op), index=0", parameters="  %f = f32[16] parameter(2)\n",
    ),
    "batch-norm-inference": _around(
        "%op = f32[8,16] batch-norm-inference(%x, %f, %f, %f, %f), epsilon=0.001, feature_index=1",
        parameters="  %f = f32[16] parameter(2)\n",
    ),
    "batch-norm-grad": _around(
        "%op = (f32[8,16], f32[16], f32[16]) batch-norm-grad(%x, %f, %f, %f, %y), epsilon=0.001, feature_index=1",
        after="get-tuple-element(%op), index=0", parameters="  %f = f32[16] parameter(2)\n",
    ),
    "scan": _around(
        "%op = (f32[8,16], f32[16]) scan(%x, %f), dimensions={0}, num_carries=1, to_apply=%step",
        after="get-tuple-element(%op), index=0", parameters="  %f = f32[16] parameter(2)\n",
    ),
}  # fmt: skip


PAIR = "(f32[8,16], f32[8,16])"
_MADE = f"  %t = {PAIR} tuple(%x, %y)\n"


def _pair(operation: str, parameters: str = "") -> str:
    """An op from pair to pair."""
    return _around(f"%op = {PAIR} {operation}", after="get-tuple-element(%op), index=0", parameters=parameters + _MADE)


_TOKENS = (
    "  %k = token[] after-all()\n  %t = (f32[8,16], token[]) tuple(%x, %k)\n"
    "  %s = token[] get-tuple-element(%t), index=1\n"
)
OTHER_BODIES: dict[str, list[str]] = {
    "opt-barrier": [_pair("opt-barrier(%t)")],
    "copy": [_pair("copy(%t)")],
    "domain": [_pair('domain(%t), domain={kind="sharding", entry={{devices=[4,1]<=[4]}}, exit={{replicated}}}')],
    "add-dependency": [_pair("add-dependency(%t, %k)", "  %k = token[] after-all()\n")],
    "call": [_pair("call(%t), to_apply=%swap")],
    "conditional": [
        _pair(
            "conditional(%p, %t, %t), true_computation=%swap, false_computation=%swap", "  %p = pred[] parameter(2)\n"
        )
    ],
    "fusion": [_pair("fusion(%t), kind=kLoop, calls=%swap")],
    "custom-call": [
        _pair('custom-call(%t), custom_call_target="LayoutConstraint"'),
        _pair('custom-call(%t), custom_call_target="Foreign"'),
        _pair('custom-call(%t), custom_call_target="Sharding", sharding={{maximal device=1}, {replicated}}'),
        _around('%op = f32[8,16] custom-call(%x), custom_call_target="Sharding", sharding={unknown}'),
    ],
    "tuple": [
        _around(
            f"%op = ({PAIR}, f32[8,16]) tuple(%t, %x)", PAIR, "get-tuple-element(%op), index=0", parameters=_MADE
        )
    ],
    "get-tuple-element": [
        _around(
            f"%op = {PAIR} get-tuple-element(%v), index=0", after="get-tuple-element(%op), index=1",
            parameters=f"{_MADE}  %v = ({PAIR}, f32[8,16]) tuple(%t, %x)\n",
        )
    ],
    "outfeed": [
        _around(
            f"%op = token[] outfeed(%t, %k), outfeed_shape={PAIR}", "token[]", "after-all(%op)",
            parameters=f"{_MADE}  %k = token[] after-all()\n",
        )
    ],
    # Among groups of one device the result has the operand's shape.
    "all-gather": [_around("%op = f32[8,16] all-gather(%x), replica_groups={{0},{1}}, dimensions={0}")],
    "reduce-scatter": [
        _around("%op = f32[8,16] reduce-scatter(%x), replica_groups={{0},{1}}, dimensions={0}, to_apply=%sum")
    ],
    "rng": [
        _around(
            "%op = f32[] rng(%l, %h), distribution=rng_uniform", "f32[]",
            parameters="  %l = f32[] constant(0)\n  %h = f32[] constant(1)\n",
        )
    ],
    "rng-bit-generator": [
        _around(
            "%op = u32[8,16] rng-bit-generator(%n), algorithm=rng_philox", "u32[8,16]",
            parameters="  %n = u64[2] parameter(2)\n",
        )
    ],
    "set-dimension-size": [
        _around(
            "%op = f32[<=8,16] set-dimension-size(%b, %n), dimensions={0}", "f32[<=8,16]",
            parameters="  %n = s32[] parameter(2)\n  %a = f32[<=8,16] set-dimension-size(%x, %n), dimensions={0}\n"
            "  %b = f32[<=8,16] copy(%a)\n",
        )
    ],
    "dynamic-reshape": [
        _around(
            "%op = f32[<=8,16] dynamic-reshape(%b, %n, %n)", "f32[<=8,16]",
            parameters="  %n = s32[] parameter(2)\n  %a = f32[<=8,16] set-dimension-size(%x, %n), dimensions={0}\n"
            "  %b = f32[<=8,16] copy(%a)\n",
        )
    ],
    "bitcast": [_around("%op = f32[8,16] bitcast(%x)")],
    "ragged-dot": [
        _around(
            "%op = f32[8,16] ragged-dot(%x, %w, %g), lhs_contracting_dims={1}, rhs_contracting_dims={1},"
            " lhs_ragged_dims={0}, rhs_group_dims={0}",
            parameters="  %w = f32[3,16,16] parameter(2)\n  %g = s32[3] parameter(3)\n",
        )
    ],
    "after-all": [
        _around(
            "%op = token[] after-all(%s, %r)", "token[]", "after-all(%op)",
            parameters=_TOKENS + _TOKENS.replace("%t ", "%u ").replace("%t)", "%u)").replace("%s ", "%r ")
            .replace("%k ", "%j ").replace("%k)", "%j)").replace("%x", "%y"),
        )
    ],
    "concatenate": [
        _around(
            "%op = f32[16,16] concatenate(%r, %r), dimensions={0}", "f32[16,16]",
            parameters="  %r = f32[8,16] reshape(%x)\n",
        )
    ],
}  # fmt: skip
"""More forms of an op, for directed modules: over tuples, or with an operand of the result's shape."""


def bodies(opcode: str) -> list[str]:
    """Every form in which that opcode is written here."""
    return [BODIES[opcode], *OTHER_BODIES.get(opcode, [])]


def opcode_module(opcode: str) -> str:
    """The module written for that opcode."""
    return f"HloModule {opcode.replace('-', '_')}\n{REGIONS}\nENTRY %main {{\n{BODIES[opcode]}\n}}\n"
