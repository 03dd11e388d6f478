"""Collectives, over named axes where the groups run along them, else over `axis_index_groups` of all axes.

Floor: executor.  Who takes part in a collective is said in `spmd`, what a program reads best is chosen in `axes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from hlosharding.errors import ExecutionError
from hlosharding.executor.emit import EMITTERS, EmittedOp, raw
from hlosharding.executor.lax_windows import COMBINERS, combiner, reducer_text
from hlosharding.executor.text import one_or_tuple, scalar_text, tuple_of
from hlosharding.ir import Instruction, neutral_element
from hlosharding.spmd import Devices, Groups, device_groups, permute_pairs

REDUCERS = {"add": "psum", "maximum": "pmax", "minimum": "pmin"}
# Of these the members' order in a group is part of the meaning.
_ORDERED = frozenset({"all-gather", "all-to-all", "reduce-scatter", "collective-broadcast", "ragged-all-to-all"})


def is_ordered(inst: Instruction) -> bool:
    """Does the order of the members in a group matter?"""
    return inst.opcode in _ORDERED


def _groups(op: EmittedOp) -> Groups:
    return device_groups(op.inst, Devices(op.program.num_devices))


def _axes_and_groups(op: EmittedOp) -> tuple[str, str]:
    """The axis names, and the `axis_index_groups` argument where they do not suffice."""
    axes, groups = op.program.axes, _groups(op)
    parts = axes.parts_of(groups, ordered=is_ordered(op.inst))
    if parts is not None and parts:
        return axes.text(parts), ""
    return axes.every, f", axis_index_groups={op.program.groups(axes.places(groups))}"


_Write = Callable[[EmittedOp, str, str], str]


def _over_groups(opcode: str) -> Callable[[_Write], _Write]:
    """Enters how a collective is written over axes and groups; each device alone has its operands for results."""

    def enter(write: _Write) -> _Write:
        @wraps(write)
        def emit(op: EmittedOp) -> str:
            if all(len(group) == 1 for group in _groups(op)):
                return tuple_of(op.args) if op.inst.shape.is_tuple else one_or_tuple(op.args)
            return write(op, *_axes_and_groups(op))

        EMITTERS.add(opcode, emit)
        return write

    return enter


def _reduces_by(inst: Instruction) -> str | None:
    name = combiner(inst.called[0])
    if inst.operands[0].shape.element_type == "pred":
        # On truth values: "or" is the maximum, "and" the minimum; a sum is taken as "or" by XLA.
        name = {"or": "maximum", "add": "maximum", "and": "minimum"}.get(name or "")
        return None if name is None else REDUCERS[name]
    if inst.operands[0].shape.is_complex and name != "add":
        return None
    return REDUCERS.get(name or "")


@_over_groups("all-reduce")
def _all_reduce(op: EmittedOp, axes: str, groups: str) -> str:
    function = _reduces_by(op.inst)
    if function is not None:
        may_be_nan = function != "psum" and op.inst.operands[0].shape.is_floating
        call = f"keeping_nan(lax.{function}, " if may_be_nan else f"lax.{function}("
        return f"{call}{one_or_tuple(op.args)}, {axes}{groups})"
    if _has_own_collective(op):
        return raw(op)
    return one_or_tuple([_reduced_by_exchange(op, text, axes, groups) for text in op.args])


def _has_own_collective(op: EmittedOp) -> bool:
    """Does XLA know the reducer?  On integers it has no bitwise ones, and none at all that it does not recognise."""
    name = combiner(op.inst.called[0])
    if name is None:
        where = op.inst.where
        raise ExecutionError(f"{op.inst.opcode} with a reducer that is no single operation", where=where)
    # Complex numbers are ordered in lax, not in XLA's collectives.
    return name == "multiply" or (name in ("maximum", "minimum") and not op.inst.operands[0].shape.is_complex)


def _local_reduce(op: EmittedOp, text: str, dim: int) -> str:
    name, shape = combiner(op.inst.called[0]) or "", op.inst.operands[0].shape
    # lax adds no truth values; XLA takes their sum as "or".
    name = "or" if name == "add" and shape.element_type == "pred" else name
    neutral = neutral_element(name, shape.element_type)
    assert neutral is not None
    reducer = reducer_text(op) if shape.is_complex else f"lax.{COMBINERS[name]}"
    return f"lax.reduce({text}, {scalar_text(neutral)}, {reducer}, ({dim},))"


def _reduced_by_exchange(op: EmittedOp, text: str, axes: str, groups: str) -> str:
    """Exchange pieces, reduce one's own, gather them: the bytes of an all-reduce."""
    shape = op.inst.operands[0].shape
    ways = len(_groups(op)[0])
    if shape.size % ways:
        return _local_reduce(op, f"lax.all_gather({text}, {axes}{groups})", 0)
    rows = f"lax.reshape({text}, {(ways, shape.size // ways)})"
    piece = _local_reduce(op, f"lax.all_to_all({rows}, {axes}, 0, 0, tiled=True{groups})", 0)
    return f"lax.reshape(lax.all_gather({piece}, {axes}, tiled=True{groups}), {shape.dims})"


@_over_groups("all-gather")
def _all_gather(op: EmittedOp, axes: str, groups: str) -> str:
    return f"lax.all_gather({one_or_tuple(op.args)}, {axes}, axis={op.inst.dimensions[0]}, tiled=True{groups})"


@_over_groups("reduce-scatter")
def _reduce_scatter(op: EmittedOp, axes: str, groups: str) -> str:
    operand = one_or_tuple(op.args)
    if _reduces_by(op.inst) != "psum":
        # XLA's own loses NaN on CPU devices.
        is_kept = _has_own_collective(op) and not op.inst.operands[0].shape.is_floating
        return raw(op) if is_kept else _scattered_by_exchange(op, axes, groups)
    return f"lax.psum_scatter({operand}, {axes}, scatter_dimension={op.inst.dimensions[0]}, tiled=True{groups})"


def _scattered_by_exchange(op: EmittedOp, axes: str, groups: str) -> str:
    """Exchange the pieces, then reduce one's own."""
    dim, texts = op.inst.dimensions[0], []
    ways = len(_groups(op)[0])
    for text, operand in zip(op.args, op.inst.operands, strict=True):
        dims = operand.shape.dims
        split = (*dims[:dim], ways, dims[dim] // ways, *dims[dim + 1 :])
        pieces = f"lax.reshape(lax.all_to_all({text}, {axes}, {dim}, {dim}, tiled=True{groups}), {split})"
        texts.append(_local_reduce(op, pieces, dim))
    return one_or_tuple(texts)


@_over_groups("all-to-all")
def _all_to_all(op: EmittedOp, axes: str, groups: str) -> str:
    if not op.inst.shape.is_tuple:
        dim = op.inst.dimensions[0]
        return f"lax.all_to_all({op.args[0]}, {axes}, {dim}, {dim}, tiled=True{groups})"
    # One operand per member: as rows of one array.
    rows = ", ".join(f"lax.expand_dims({a}, (0,))" for a in op.args)
    whole = f"lax.all_to_all(lax.concatenate([{rows}], 0), {axes}, 0, 0, tiled=True{groups})"
    return f"tuple(lax.index_in_dim(whole, i, keepdims=False) for whole in [{whole}] for i in range({len(op.args)}))"


@EMITTERS.register("collective-permute")
def _collective_permute(op: EmittedOp) -> str:
    axes, pairs = op.program.axes, permute_pairs(op.inst, Devices(op.program.num_devices))
    along = axes.permute_parts(pairs)
    names, local = (axes.text(along[0]), along[1]) if along is not None else (axes.every, axes.places(pairs))
    return one_or_tuple([f"lax.ppermute({a}, {names}, {op.program.groups(local)})" for a in op.args])


@_over_groups("collective-broadcast")
def _collective_broadcast(op: EmittedOp, axes: str, groups: str) -> str:
    # Gather and take the first: pbroadcast does not run on CPU.
    return f"lax.index_in_dim(lax.all_gather({op.args[0]}, {axes}{groups}), 0, keepdims=False)"


@EMITTERS.register("ragged-all-to-all")
def _ragged_all_to_all(op: EmittedOp) -> str:
    axes, groups = _axes_and_groups(op)
    return f"lax.ragged_all_to_all({op.arg_list}, axis_name={axes}{groups})"


@EMITTERS.register("partition-id")
def _partition_id(op: EmittedOp) -> str:
    axes = op.program.axes
    place = f"lax.convert_element_type(lax.axis_index({axes.every}), np.uint32)"
    if axes.is_natural:
        return place
    return f"lax.dynamic_index_in_dim(np.array({list(axes.devices)}, np.uint32), {place}, keepdims=False)"


EMITTERS.add("replica-id", lambda op: "np.uint32(0)")
