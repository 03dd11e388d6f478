"""Gather, scatter, dynamic slices, sort and top-k.

Floor: executor.  HLO's own rules for indices out of bounds hold: gathers and dynamic slices clamp, scatters drop.  In
lax those are the plain ops, spelled `promise_in_bounds` for a gather (lax's `clip` would clamp a second time).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.executor.emit import EMITTERS, EmittedOp, raw
from hlosharding.executor.lax_windows import combiner
from hlosharding.executor.text import dtype_text, one_or_tuple, scalar_text, tuple_text
from hlosharding.ir import Computation, Instruction, Module, Sameness

_SCATTERS = {"add": "scatter_add", "multiply": "scatter_mul", "maximum": "scatter_max", "minimum": "scatter_min"}


def _last_index_dim(text: str, indices: Instruction, index_vector_dim: int) -> str:
    """The indices with their index vector on the last dim, where lax wants it."""
    dims = indices.shape.dims
    if index_vector_dim == len(dims):
        return f"lax.reshape({text}, {tuple_text((*dims, 1))})"
    if index_vector_dim == len(dims) - 1:
        return text
    order = [d for d in range(len(dims)) if d != index_vector_dim] + [index_vector_dim]
    return f"lax.transpose({text}, {tuple_text(order)})"


def _moved(batching: Sequence[int], index_vector_dim: int) -> tuple[int, ...]:
    """Batching dims of the indices after `_last_index_dim`."""
    return tuple(d - (d > index_vector_dim) for d in batching)


def _flags(inst: Instruction) -> str:
    sorted_ = ", indices_are_sorted=True" if inst.proto.indices_are_sorted else ""
    return sorted_ + (", unique_indices=True" if inst.proto.unique_indices else "")


@EMITTERS.register("gather")
def _gather(op: EmittedOp) -> str:
    inst, dims = op.inst, op.inst.gather_dims
    if not inst.operands[0].shape.size:
        # Of nothing: lax refuses slices of size 0 that are collapsed.
        return f"lax.full({tuple_text(inst.shape.dims)}, 0, {dtype_text(inst.shape)})"
    if _looks_one_up(inst):
        return _one_slice(op)
    indices = _last_index_dim(op.args[1], inst.operands[1], dims.index_vector_dim)
    numbers = [dims.offset_dims, dims.collapsed_slice_dims, dims.start_index_map]
    if dims.operand_batching_dims:
        numbers += [dims.operand_batching_dims, _moved(dims.start_indices_batching_dims, dims.index_vector_dim)]
    return (
        f"lax.gather({op.args[0]}, {indices}, lax.GatherDimensionNumbers({', '.join(map(tuple_text, numbers))}),"
        f" {tuple_text(inst.gather_slice_sizes)}, mode=CLAMPED{_flags(inst)})"
    )


def _looks_one_up(inst: Instruction) -> bool:
    """Is it one slice, at a place of several coordinates?  XLA's CPU compiler makes a broken fusion of such gathers."""
    indices, coordinates = inst.operands[1].shape, inst.gather_dims.start_index_map
    return 1 < len(coordinates) == indices.size and indices.element_type in ("s32", "s64")


def _one_slice(op: EmittedOp) -> str:
    inst, places = op.inst, op.inst.gather_dims.start_index_map
    zero = scalar_text(np.zeros((), inst.operands[1].shape.dtype))
    starts = [f"i[{places.index(d)}]" if d in places else zero for d in range(len(inst.operands[0].shape.dims))]
    sizes = tuple_text(inst.gather_slice_sizes)
    cut = f"lax.dynamic_slice(x, [{', '.join(starts)}], {sizes}, allow_negative_indices=False)"
    index = f"lax.reshape({op.args[1]}, {tuple_text((len(places),))})"
    return f"(lambda x, i: lax.reshape({cut}, {tuple_text(inst.shape.dims)}))({op.args[0]}, {index})"


@EMITTERS.register("scatter")
def _scatter(op: EmittedOp) -> str:
    inst, dims = op.inst, op.inst.scatter_dims
    function = _scatter_function(inst)
    if function is None:
        return raw(op)
    indices = _last_index_dim(op.args[1], inst.operands[1], dims.index_vector_dim)
    numbers = [dims.update_window_dims, dims.inserted_window_dims, dims.scatter_dims_to_operand_dims]
    if dims.input_batching_dims:
        numbers += [dims.input_batching_dims, _moved(dims.scatter_indices_batching_dims, dims.index_vector_dim)]
    numbers_text = f"lax.ScatterDimensionNumbers({', '.join(map(tuple_text, numbers))})"
    return f"lax.{function}({op.args[0]}, {indices}, {op.args[2]}, {numbers_text}, mode=DROPPED{_flags(inst)})"


def _scatter_function(inst: Instruction) -> str | None:
    if len(inst.operands) != 3:
        return None
    root = inst.called[0].root
    if root.opcode == "parameter" and root.parameter_number == 1:
        return "scatter"
    name = combiner(inst.called[0])
    if name is None or inst.shape.element_type == "pred" or (inst.shape.is_complex and name != "add"):
        return None
    return _SCATTERS.get(name)


def _starts(op: EmittedOp, first: int, sizes: tuple[int, ...]) -> str:
    """The start indices; constant ones are clamped here, as lax refuses those that are out of bounds."""
    dims = op.inst.operands[0].shape.dims
    texts = list(op.args[first:])
    for place, (start, dim, size) in enumerate(zip(op.inst.operands[first:], dims, sizes, strict=True)):
        if start.opcode == "constant":
            inside = min(max(int(start.literal), 0), dim - size)
            texts[place] = scalar_text(np.asarray(inside, start.shape.dtype))
    return ", ".join(texts)


@EMITTERS.register("dynamic-slice")
def _dynamic_slice(op: EmittedOp) -> str:
    sizes = op.inst.dynamic_slice_sizes
    return (
        f"lax.dynamic_slice({op.args[0]}, [{_starts(op, 1, sizes)}], {tuple_text(sizes)}, allow_negative_indices=False)"
    )


@EMITTERS.register("dynamic-update-slice")
def _dynamic_update_slice(op: EmittedOp) -> str:
    starts = _starts(op, 2, op.inst.operands[1].shape.dims)
    return f"lax.dynamic_update_slice({op.args[0]}, {op.args[1]}, [{starts}], allow_negative_indices=False)"


@EMITTERS.register("sort")
def _sort(op: EmittedOp) -> str:
    inst = op.inst
    keys = _lax_sort_keys(inst)
    if keys is None:
        return raw(op)
    operands = one_or_tuple(op.args)
    stable = bool(inst.proto.is_stable)
    return f"lax.sort({operands}, {inst.dimensions[0]}, is_stable={stable}, num_keys={keys})"


def _lax_sort_keys(inst: Instruction) -> int | None:
    """How many keys lax.sort must be given to sort by this comparator, or None if it never does."""
    types = tuple(str(o.shape.dtype) for o in inst.operands)
    for keys in range(1, len(types) + 1):
        theirs = _lax_comparator(types, keys)
        if theirs is not None and _alike(theirs, inst.called[0]):
            return keys
    return None


def _alike(first: Computation, second: Computation) -> bool:
    sameness = Sameness()
    return sameness.computation(first) == sameness.computation(second)


@lru_cache(maxsize=256)
def _lax_comparator(dtypes: tuple[str, ...], keys: int) -> Computation | None:
    """The comparator that lax.sort makes for these operands, as HLO."""
    import jax
    from jax import lax

    def sort(*operands: Any) -> Any:
        return lax.sort(operands, 0, num_keys=keys)

    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct((4,), name) for name in dtypes]
        module = Module.from_proto(xla_bridge.lowered_to_hlo_proto(xla_bridge.jit(sort).lower(*shapes)))
    return next((i.called[0] for i in module.instructions if i.opcode == "sort"), None)


@EMITTERS.register("topk")
def _topk(op: EmittedOp) -> str:
    proto, shape = op.inst.proto, op.inst.operands[0].shape
    if proto.largest:
        return f"lax.top_k({op.args[0]}, {proto.k})"
    # The smallest are the largest of an order-reversing map that undoes itself.
    turn = "lax.neg" if shape.is_floating else "lax.bitwise_not"
    return f"(lambda v, i: ({turn}(v), i))(*lax.top_k({turn}({op.args[0]}), {proto.k}))"
