"""Indices that are an iota, 0, 1, 2, ... along a dim: the dim they address then moves in step with them.

Floor: rules.  The one place of this room that looks past an instruction: at how its index values were made.  It knows
no shardings; what XLA recognises, which is less, is the propagation room's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from hlosharding.ir import INDEXED, Instruction, Shape, arguments, callers, while_parts
from hlosharding.ir import custom_call_targets as targets
from hlosharding.registry import Registry
from hlosharding.rules.signature import Dims, Nothing, Signature

_FULL_OF_ONE_NUMBER = frozenset({"broadcast", "copy", "reshape"})
"""Of a number: all elements are that number."""
_PASS_CALLS = targets.PLACEMENTS | {targets.SHARDING}


@dataclass(frozen=True, slots=True)
class Addressing:
    """What gather and scatter have in common."""

    indices: int
    """The operand that holds the index values."""
    vector_dim: int
    addressed: tuple[int, ...]
    """The dim of operand 0 that each component of an index addresses."""
    slice_sizes: tuple[int, ...]
    """Per dim of operand 0, how much one index takes or updates."""
    batching: tuple[int, ...]
    """Indices dims that are declared to move in step with operand 0."""
    windows: tuple[int, ...]
    """Dims of the result (of a scatter: of the updates) that lie within a slice."""


def addressing(inst: Instruction) -> Addressing:
    """How a gather or scatter addresses its operand 0."""
    if inst.opcode == "gather":
        dims = inst.gather_dims
        batching = dims.start_indices_batching_dims
        return Addressing(
            1, dims.index_vector_dim, dims.start_index_map, inst.gather_slice_sizes, batching, dims.offset_dims
        )
    dims, count = inst.scatter_dims, len(inst.operands) // 2
    window, update = iter(dims.update_window_dims), inst.operands[count + 1].shape.dims
    absent = (*dims.inserted_window_dims, *dims.input_batching_dims)
    sizes = tuple(1 if d in absent else update[next(window)] for d in range(inst.operands[0].shape.rank))
    batching = dims.scatter_indices_batching_dims
    addressed = dims.scatter_dims_to_operand_dims
    return Addressing(count, dims.index_vector_dim, addressed, sizes, batching, dims.update_window_dims)


def iota_columns(pieces: Iterable[tuple[Shape, int | None]], vector_dim: int) -> Iterator[int | None]:
    """For each component of the index vector: the indices dim along which it is an iota, or None.

    `pieces`: the arrays that are joined along the vector dim, and the dim along which each is an iota.
    """
    for shape, dim in pieces:
        width = shape.dims[vector_dim] if shape.rank > vector_dim else 1
        yield from (None if dim == vector_dim else dim,) * width


def iota_constant(literal: np.ndarray) -> int | None:
    """The dim along which an array counts 0, 1, 2, ...

    >>> iota_constant(np.array([[0, 0], [1, 1], [2, 2]]))
    0
    """
    for dim, size in enumerate(map(int, literal.shape)):
        numbers = np.expand_dims(np.arange(size), tuple(range(1, literal.ndim - dim)))
        if size > 1 and np.array_equal(literal, np.broadcast_to(numbers, literal.shape)):
            return dim
    return None


# ---- the signature of a gather or scatter that takes what stands at an iota's places


def iota_signature(inst: Instruction, signature: Signature) -> Signature | None:
    """The truth of a gather or scatter some of whose indices are an iota: dims they address go in step with them.

    None where none is.  `signature` is the one the op's rule declares.
    """
    if inst.opcode not in INDEXED:
        return None
    how, pairs = addressing(inst), dict[int, int]()
    operand, indices = inst.operands[0].shape.dims, _behind_copies(inst.operands[how.indices])
    joined = indices.opcode == "concatenate" and indices.dimensions[0] == how.vector_dim
    known = _Iotas()
    pieces = ((p.shape, known.dim(p)) for p in (indices.operands if joined else (indices,)))
    columns = iota_columns(pieces, how.vector_dim)
    for dim, along in zip(how.addressed, columns, strict=True):
        if along is None or along in how.batching or along in pairs.values() or how.slice_sizes[dim] != 1:
            continue
        if operand[dim] == indices.shape.dims[along] > 1:
            pairs[dim] = along
    return _in_step(signature, how.indices, tuple(pairs.items())) if pairs else None


@lru_cache(maxsize=1 << 12)
def _in_step(signature: Signature, indices: int, pairs: tuple[tuple[int, int], ...]) -> Signature:
    """Each pair (dim of operand 0, dim of the indices) becomes one factor that owes nothing."""
    names = {signature.operands[0][a][0]: signature.operands[indices][b][0] for a, b in pairs}
    factors = [
        replace(f, owes=Nothing()) if n in names.values() else f
        for n, f in enumerate(signature.factors)
        if n not in names
    ]
    kept = [n for n in range(len(signature.factors)) if n not in names]
    number = {n: kept.index(names.get(n, n)) for n in range(len(signature.factors))}

    def renumbered(tensors: tuple[Dims, ...]) -> tuple[Dims, ...]:
        return tuple(tuple(tuple(number[n] for n in dim) for dim in dims) for dims in tensors)

    return Signature(tuple(factors), renumbered(signature.operands), renumbered(signature.results))


def _behind_copies(value: Instruction) -> Instruction:
    while value.opcode == "copy" or value.custom_call_target in _PASS_CALLS:
        value = value.operands[0]
    return value


# ---- along which dim is a value an iota?

_iota_dims: Registry[str, Callable[[_Iotas, Instruction], int | None]] = Registry("ops that keep an iota")


# Values looked at before giving up: an iota is made in a few steps.
_PATIENCE = 200


def _largest(shape: Shape) -> int:
    bits = int(shape.element_type[1:])
    return 2 ** (bits - shape.element_type.startswith("s")) - 1


class _Iotas:
    """Answers one question about one value, remembering those about the values it was made of."""

    def __init__(self) -> None:
        self._known: dict[Instruction, int | None] = {}

    def dim(self, value: Instruction) -> int | None:
        """The dim along which an integer array is 0, 1, 2, ...; None if nothing says so."""
        rule = _iota_dims.get(value.opcode)
        if rule is None or not (value.shape.is_array and value.shape.is_integral):
            return None
        if value not in self._known and len(self._known) < _PATIENCE:
            self._known[value] = None
            dim = rule(self, value)
            # A narrow type starts anew at its end.
            self._known[value] = dim if dim is not None and value.shape.dims[dim] <= _largest(value.shape) + 1 else None
        return self._known.get(value)

    def all(self, values: Sequence[Instruction]) -> int | None:
        """The dim along which every one of them is an iota."""
        found = {self.dim(v) for v in values}
        return found.pop() if len(found) == 1 else None


@_iota_dims.register("iota")
def _iota(known: _Iotas, value: Instruction) -> int | None:
    return value.iota_dimension


@_iota_dims.register("constant")
def _constant(known: _Iotas, value: Instruction) -> int | None:
    return iota_constant(value.literal) if value.shape.is_array else None


@_iota_dims.register("copy", "convert", "opt-barrier")
def _same(known: _Iotas, value: Instruction) -> int | None:
    return known.dim(value.operands[0])


@_iota_dims.register("custom-call")
def _passing(known: _Iotas, value: Instruction) -> int | None:
    return known.dim(value.operands[0]) if value.custom_call_target in _PASS_CALLS else None


@_iota_dims.register("broadcast")
def _broadcast(known: _Iotas, value: Instruction) -> int | None:
    dim = known.dim(value.operands[0])
    return None if dim is None else value.dimensions[dim]


@_iota_dims.register("transpose")
def _transpose(known: _Iotas, value: Instruction) -> int | None:
    dim = known.dim(value.operands[0])
    return None if dim is None else value.dimensions.index(dim)


@_iota_dims.register("reshape")
def _reshape(known: _Iotas, value: Instruction) -> int | None:
    dim, before, after = known.dim(value.operands[0]), value.operands[0].shape.dims, value.shape.dims
    if dim is None:
        return None
    same = (d for d, n in enumerate(after) if n == before[dim] and prod(after[:d]) == prod(before[:dim]))
    return next(same, None)


@_iota_dims.register("slice")
def _slice(known: _Iotas, value: Instruction) -> int | None:
    dim = known.dim(value.operands[0])
    return None if dim is None or value.slice_dims[dim].start or value.slice_dims[dim].stride != 1 else dim


@_iota_dims.register("concatenate")
def _concatenate(known: _Iotas, value: Instruction) -> int | None:
    dim = known.all(value.operands)
    return None if dim is None or dim == value.dimensions[0] else dim


@_iota_dims.register("select")
def _select(known: _Iotas, value: Instruction) -> int | None:
    """Both sides are iotas, or the predicate is known: negative places counted from the end, as JAX writes it."""
    predicate, *sides = value.operands
    truth = _truth(known, _behind_copies(predicate))
    return known.all(sides) if truth is None else known.dim(sides[0] if truth else sides[1])


def _truth(known: _Iotas, predicate: Instruction) -> bool | None:
    """What a comparison of an iota with one number says of all elements."""
    if predicate.opcode != "compare":
        return None
    count, bound = predicate.operands
    dim, limit = known.dim(count), _number(bound)
    if dim is None or limit is None:
        return None
    last = count.shape.dims[dim] - 1
    always = {"LT": last < limit, "LE": last <= limit, "GT": limit < 0, "GE": limit <= 0}
    never = {"LT": limit <= 0, "LE": limit < 0, "GT": last <= limit, "GE": last < limit}
    direction = predicate.comparison_direction
    return True if always.get(direction) else False if never.get(direction) else None


def _number(value: Instruction) -> int | None:
    """The one number an integer array is full of."""
    while value.opcode in _FULL_OF_ONE_NUMBER:
        value = value.operands[0]
    if value.opcode != "constant" or not value.shape.is_integral or value.shape.size != 1:
        return None
    return int(value.literal.reshape(()))


@_iota_dims.register("clamp")
def _clamp(known: _Iotas, value: Instruction) -> int | None:
    low, count, high = value.operands
    dim, least, most = known.dim(count), _number(low), _number(high)
    if dim is None or least is None or most is None:
        return None
    return dim if least <= 0 and value.shape.dims[dim] - 1 <= most else None


@_iota_dims.register("get-tuple-element")
def _element(known: _Iotas, value: Instruction) -> int | None:
    source, index = value.operands[0], value.tuple_index
    if source.opcode == "opt-barrier":
        source = source.operands[0]
    return _ELEMENTS.get(source.opcode, _element_of)(known, source, index)


@_iota_dims.register("parameter")
def _parameter(known: _Iotas, value: Instruction) -> int | None:
    return _passed(known, value, None)


def _passed(known: _Iotas, parameter: Instruction, index: int | None) -> int | None:
    """Of a parameter (of an element of it): what every caller hands over is an iota along one dim."""
    if parameter.computation.is_entry:
        return None
    found: set[int | None] = set()
    for caller in callers(parameter.module).get(parameter.computation, ()):
        if caller.opcode == "while" and index is not None:
            found.add(_carried(known, caller, index))
        elif caller.opcode in ("conditional", "call"):
            handed = arguments(caller, parameter)
            found.update(known.dim(h) if index is None else _element_of(known, h, index) for h in handed)
        else:
            return None
    return found.pop() if len(found) == 1 else None


def _element_of(known: _Iotas, source: Instruction, index: int) -> int | None:
    """Of an element of a tuple that is built in place."""
    return known.dim(source.operands[index]) if source.opcode == "tuple" else None


def _carried(known: _Iotas, loop: Instruction, index: int) -> int | None:
    """Of an element of a loop's carry that the body hands on as it is."""
    made = while_parts(loop).body.root
    kept = made.operands[index] if made.opcode == "tuple" else None
    if kept is None or kept.opcode != "get-tuple-element" or kept.tuple_index != index:
        return None
    if kept.operands[0].opcode != "parameter":
        return None
    return _element_of(known, loop.operands[0], index)


_ELEMENTS: dict[str, Callable[[_Iotas, Instruction, int], int | None]] = {"while": _carried, "parameter": _passed}
"""Where an element of a tuple is looked for; in any other op the tuple is built in place."""
