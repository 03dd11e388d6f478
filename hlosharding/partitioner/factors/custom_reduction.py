"""Partial results that only the op itself can combine: gathered from their devices, and the op done once more on them.

Floor: partitioner.  A reduction with a reducer of its own (arg-max), and the largest k: each piece names its own k, and
the best of those are the best of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding.ir import GatherDims, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.factors.pieces import PIECES, Piece, plain_piece
from hlosharding.partitioner.region_values import array_of
from hlosharding.partitioner.resharding import replicate
from hlosharding.registry import Registry
from hlosharding.rules import Reduce, Signature, Whole, top_k
from hlosharding.sharding import HloSharding, offsets, partial_sum_groups
from hlosharding.spmd import Emitter, identity


@dataclass(frozen=True, slots=True)
class Combining:
    """How partial results of one kind of op become one."""

    fill: Callable[[Context, Instruction, int], Any]
    """A number (or scalar instruction) that may stand in the padding of an operand."""
    combine: Callable[[Emitter, Piece, tuple[Instruction, ...], tuple[tuple[int, ...], ...]], tuple[Instruction, ...]]
    """The result leaves, from those of each piece and the groups of devices that hold them."""


_COMBINING: Registry[str, Combining] = Registry("ops that combine their own partial results")


def combining_of(inst: Instruction) -> Combining | None:
    """How the op combines partial results that are no plain sum; None where it cannot."""
    return _COMBINING.get("topk" if top_k(inst) else inst.opcode)


def combined(emitter: Emitter, piece: Piece, local: Instruction) -> tuple[Instruction, ...]:
    """The leaves of the result, whole in every group of devices that held a part of it."""
    how = combining_of(piece.inst)
    assert how is not None, "only such ops have partial results of an unknown kind"
    emitter.reason = "combine partial results"
    groups = partial_sum_groups(piece.choice.results[0], emitter.num_partitions)
    return how.combine(emitter, piece, _leaves(emitter, local), groups)


def _leaves(emitter: Emitter, local: Instruction) -> tuple[Instruction, ...]:
    return tuple(emitter.elements(local)) if local.shape.is_tuple else (local,)


# ---- a reduction with a reducer of its own


def _initial(context: Context, inst: Instruction, index: int) -> Instruction:
    return replicate(context, array_of(context, inst.operands[len(inst.operands) // 2 + index])).local


def _reduced_again(
    emitter: Emitter, piece: Piece, parts: tuple[Instruction, ...], groups: tuple[tuple[int, ...], ...]
) -> tuple[Instruction, ...]:
    stacked = [emitter.all_gather(emitter.reshape(p, (1, *p.shape.dims)), 0, groups) for p in parts]
    inits = piece.operands[len(piece.operands) // 2 :]
    return _leaves(emitter, emitter.local(piece.inst, piece.shape, (*stacked, *inits), dimensions=(0,)))


_COMBINING.add("reduce", Combining(_initial, _reduced_again))


# ---- the largest k


def candidates_signature(inst: Instruction, signature: Signature, x: HloSharding) -> Signature | None:
    """Of a choice of the largest k: another truth, in which the dim is split and each piece offers its own k.

    None where the candidates with their places are no less than the elements they are taken from.
    """
    how, shape = top_k(inst), inst.operands[0].shape
    if how is None or x.kind != "tiled":
        return None
    offered = how.k * x.num_tiles_along(shape.rank - 1) * sum(leaf.byte_size // leaf.size for leaf in inst.shape.leaves)
    return _of_candidates(signature) if offered <= shape.dims[-1] * shape.byte_size // shape.size else None


@lru_cache(maxsize=256)
def _of_candidates(signature: Signature) -> Signature:
    factors = (replace(f, owes=Reduce("other")) if isinstance(f.owes, Whole) else f for f in signature.factors)
    return Signature(tuple(factors), signature.operands, signature.results)


def _last(context: Context, inst: Instruction, index: int) -> np.ndarray:
    how = top_k(inst)
    assert how is not None
    return identity("maximum" if how.largest else "minimum", inst.operands[0].shape)


@PIECES.register("topk", "custom-call")
def _offered(emitter: Emitter, piece: Piece) -> Instruction:
    """The largest of a tile, named by their places in the whole array."""
    how = top_k(piece.inst)
    if how is None or piece.choice.reduce_kind is None:
        return plain_piece(emitter, piece)
    x, dims = piece.operands[0], piece.inst.operands[0].shape.dims
    found = _largest(emitter, piece, x, min(how.k, x.shape.dims[-1]))
    starts = offsets(piece.choice.operands[0], dims, len(dims) - 1, emitter.num_partitions)
    start = emitter.per_device(starts)
    places = emitter.binary("add", found[1], emitter.full(start, found[1].shape))
    return emitter.op("tuple", Shape.tuple((found[0].shape, places.shape)), (found[0], places))


def _largest(emitter: Emitter, piece: Piece, x: Instruction, k: int) -> tuple[Instruction, ...]:
    shape = Shape.tuple(tuple(s.with_dims((*x.shape.dims[:-1], k)) for s in piece.inst.shape.tuple_shapes))
    if piece.inst.opcode == "topk":
        return _leaves(emitter, plain_piece(emitter, piece, (x,), shape=shape, k=lambda _: k))
    return _leaves(emitter, plain_piece(emitter, piece, (x,), shape=shape))


def _best_of_all(
    emitter: Emitter, piece: Piece, parts: tuple[Instruction, ...], groups: tuple[tuple[int, ...], ...]
) -> tuple[Instruction, ...]:
    """Candidates stand in the order of their tiles, so that of equal ones the first in the whole array wins."""
    how, last = top_k(piece.inst), parts[0].shape.rank - 1
    assert how is not None
    values, places = (_real_ones(emitter, piece, emitter.all_gather(p, last, groups), len(groups[0])) for p in parts)
    best, chosen = _largest(emitter, piece, values, how.k)
    return best, _taken(emitter, places, chosen)


def _real_ones(emitter: Emitter, piece: Piece, candidates: Instruction, pieces: int) -> Instruction:
    """The candidates without those that come from padding: the last tiles may have fewer than k elements."""
    size, tile = piece.inst.operands[0].shape.dims[-1], piece.operands[0].shape.dims[-1]
    last, dims = candidates.shape.rank - 1, candidates.shape.dims
    offered = dims[last] // pieces
    if size >= (pieces - 1) * tile + offered:
        return candidates
    parts: list[Instruction] = []
    for number in range(pieces):
        real = min(offered, size - number * tile)
        if real > 0:
            starts, limits = [0] * len(dims), list(dims)
            starts[last], limits[last] = number * offered, number * offered + real
            parts.append(emitter.slice(candidates, starts, limits))
    return emitter.concatenate(parts, last)


def _taken(emitter: Emitter, places: Instruction, chosen: Instruction) -> Instruction:
    """places[..., chosen[..., i]]"""
    last, dims = chosen.shape.rank - 1, chosen.shape.dims
    batch = tuple(range(last))
    how = GatherDims((), (last,), (last,), last + 1, batch, batch)
    return emitter.op(
        "gather", chosen.shape, (places, emitter.reshape(chosen, (*dims, 1))),
        gather_dims=how, gather_slice_sizes=(1,) * (last + 1),
    )  # fmt: skip


_COMBINING.add("topk", Combining(_last, _best_of_all))
