"""Ops that move, make or regroup elements without arithmetic.

Floor: executor.
"""

from __future__ import annotations

from hlosharding.executor.emit import EMITTERS, REFUSED, EmittedOp, WriteOp, raw
from hlosharding.executor.text import dtype_text, tuple_text

_CALLS: dict[str, WriteOp] = {
    # Order between side effects: the ops that make them are refused, so that a token carries nothing.
    "after-all": lambda op: "()",
    "concatenate": lambda op: f"lax.concatenate([{op.arg_list}], {op.inst.dimensions[0]})",
    "get-dimension-size": lambda op: f"np.int32({op.inst.operands[0].shape.dims[op.inst.dimensions[0]]})",
    "iota": lambda op: f"lax.broadcasted_iota({dtype_text(op.inst.shape)}, {_dims(op)}, {op.inst.iota_dimension})",
    "opt-barrier": lambda op: f"lax.optimization_barrier({op.args[0]})",
    "pad": lambda op: f"lax.pad({op.arg_list}, {tuple_text([(d.low, d.high, d.interior) for d in op.inst.padding])})",
    "reverse": lambda op: f"lax.rev({op.args[0]}, {tuple_text(op.inst.dimensions)})",
    "transpose": lambda op: f"lax.transpose({op.args[0]}, {tuple_text(op.inst.dimensions)})",
}
for _opcode, _write in _CALLS.items():
    EMITTERS.add(_opcode, _write)


def _dims(op: EmittedOp) -> str:
    return tuple_text(op.inst.shape.dims)


@EMITTERS.register("constant")
def _constant(op: EmittedOp) -> str:
    shape = op.inst.shape
    if not shape.is_array:
        return "()"
    if 0 in shape.dims:  # XLA of jax 0.11 does not survive such a constant as the result of a shard_map
        return f"lax.full({_dims(op)}, 0, {dtype_text(shape)})"
    return op.program.constant(op.inst.literal)


@EMITTERS.register("broadcast")
def _broadcast(op: EmittedOp) -> str:
    if not op.inst.dimensions:
        return f"lax.broadcast({op.args[0]}, {_dims(op)})"
    return f"lax.broadcast_in_dim({op.args[0]}, {_dims(op)}, {tuple_text(op.inst.dimensions)})"


@EMITTERS.register("reshape", "bitcast")
def _reshape(op: EmittedOp) -> str:
    if op.inst.shape.element_type != op.inst.operands[0].shape.element_type:
        return f"lax.bitcast_convert_type({op.args[0]}, {dtype_text(op.inst.shape)})"
    return f"lax.reshape({op.args[0]}, {_dims(op)})"


@EMITTERS.register("slice")
def _slice(op: EmittedOp) -> str:
    dims = op.inst.slice_dims
    starts, limits = tuple_text([d.start for d in dims]), tuple_text([d.limit for d in dims])
    strides = "" if all(d.stride == 1 for d in dims) else f", {tuple_text([d.stride for d in dims])}"
    return f"lax.slice({op.args[0]}, {starts}, {limits}{strides})"


@EMITTERS.register("rng-bit-generator")
def _rng_bit_generator(op: EmittedOp) -> str:
    (state, bits), algorithm = op.inst.shape.tuple_shapes, NAMES.get(op.inst.proto.rng_algorithm)
    if (state.element_type, state.dims) not in _STATES or algorithm is None:
        return raw(op)
    kind = f"lax.RandomAlgorithm.{algorithm}"
    return f"lax.rng_bit_generator({op.args[0]}, {tuple_text(bits.dims)}, {dtype_text(bits)}, {kind})"


NAMES = {0: "RNG_DEFAULT", 1: "RNG_THREE_FRY", 2: "RNG_PHILOX"}
_STATES = (("u32", (4,)), ("u64", (2,)))
"""Of generators, those that lax takes; XLA knows some more."""


@EMITTERS.register("rng")
def _rng(op: EmittedOp) -> str:
    if op.inst.proto.distribution == 1 and op.inst.shape.element_type in ("f32", "f64"):
        return f"lax.rng_uniform({op.arg_list}, {_dims(op)})"
    return raw(op)


_REASONS = {
    "set-dimension-size dynamic-reshape": "arrays whose sizes change at run time have no form in JAX; use"
    " run_reference",
    "infeed outfeed send send-done recv recv-done": "a transfer to or from the host belongs to one device; take it out"
    " of the partitioned program",
    "mulhi": "neither StableHLO nor every JAX can say it; hs.partition writes products of halves in its place",
    "rng-get-and-update-state": "the state is the runtime's own; use rng-bit-generator",
    "async-start async-update async-done copy-start copy-done all-gather-start all-gather-done all-reduce-start"
    " all-reduce-done collective-permute-start collective-permute-done": "it is a product of XLA's scheduler; load the"
    " module as it was before optimization",
}
for _opcodes, _reason in _REASONS.items():
    for _opcode in _opcodes.split():
        REFUSED.add(_opcode, _reason)
