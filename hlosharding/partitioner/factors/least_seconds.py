"""What no way to compute an op under a split can do without, for many splits at once.

Floor: partitioner.  The bytes that must move however well they are moved, and the computation: a lower bound on the
price of a split (`split_prices`), without planning a single step.  Splits that cannot win are not priced.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Shape
from hlosharding.partitioner.factors.choice_problem import ChoiceProblem, Operand, Result
from hlosharding.partitioner.factors.factor_roles import divides_work, is_reduced, major_dims, reduces
from hlosharding.partitioner.factors.splits import Splits
from hlosharding.partitioner.prices import ROUNDING, Numbers, Prices
from hlosharding.reshard import Layout, layout_of, received_elements
from hlosharding.rules import Dims

# Of no bytes no time is counted; of so few, what one more collective takes at least.
_FEWEST_BYTES = np.full(1, 1e-9)


class Least(NamedTuple):
    """Of many splits, seconds in the terms of `Prices.comparable_seconds`: [split] each."""

    parts: list[Numbers]
    """To move each operand, to move each result, to compute."""
    seconds: Numbers
    """Of it all."""


def least_seconds(problem: ChoiceProblem, splits: Splits, prices: Prices) -> Least:
    """What the op costs at least under each split."""
    moves = [
        *(prices.least_seconds(operand_bytes(problem, o, splits, prices), o.lies.trips) for o in problem.operands),
        *(_result_seconds(problem, r, splits, prices) for r in problem.results),
    ]
    computing = compute_seconds(problem, splits, prices)
    return Least([*moves, computing], sum(moves, computing) * ROUNDING)


def operand_bytes(problem: ChoiceProblem, operand: Operand, splits: Splits, prices: Prices) -> Numbers:
    """[split]: mean bytes that devices lack of their tiles of an operand."""
    lies = operand.lies
    if lies.is_free or not lies.shape.size:
        return np.zeros(len(splits))
    layout = layout_of(lies.sharding, lies.shape.dims, prices.machine.num_devices)
    wanted, both = _boxes(problem, splits, operand, layout)
    if layout.num_partial_sums > 1:
        lacked = _summed(operand, wanted, both, layout.num_partial_sums)
    else:
        lacked = (wanted - both).mean(1) * _item_bytes(lies.shape)
    for copy in lies.copies:
        another = replace(operand, lies=replace(lies, sharding=copy, copies=()))
        lacked = np.minimum(lacked, operand_bytes(problem, another, splits, prices))
    return lacked


def result_bytes(problem: ChoiceProblem, result: Result, splits: Splits, prices: Prices) -> Numbers:
    """[split]: mean bytes that devices lack of their tiles of a result, partial sums to be added up among them."""
    return _lacked_of_result(problem, result, splits, prices)[0]


def _result_seconds(problem: ChoiceProblem, result: Result, splits: Splits, prices: Prices) -> Numbers:
    """[split]: sums that are wanted where no part of them lies take one more collective, of however few bytes."""
    lacked, is_elsewhere = _lacked_of_result(problem, result, splits, prices)
    return prices.least_seconds(lacked) + np.where(is_elsewhere, prices.least_seconds(_FEWEST_BYTES), 0.0)


def _lacked_of_result(
    problem: ChoiceProblem, result: Result, splits: Splits, prices: Prices
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """[split]: mean bytes, and whether some device wants sums of which it holds no part."""
    nothing, nowhere = np.zeros(len(splits)), np.zeros(len(splits), bool)
    if not result.shape.is_array or not result.shape.size:
        return nothing, nowhere
    signature = problem.signature
    reduced = [f for f in range(len(signature.factors)) if is_reduced(signature, f)]
    parts = splits.num_tiles[:, reduced].prod(1)
    if result.wanted is None:
        made, _ = _boxes(problem, splits, result, None)
        return np.where(parts > 1, _summed(result, made, made, parts), 0.0), nowhere
    layout = layout_of(result.wanted, result.shape.dims, prices.machine.num_devices)
    # Where partial sums are wanted they need not meet: nothing is the bound that holds for every way.
    if layout.num_partial_sums > 1:
        return nothing, nowhere
    _, both = _boxes(problem, splits, result, layout)
    low, high = layout.bounds
    sizes = high - low
    sizes[:, list(result.broadcast_dims)] = 1
    wanted = np.broadcast_to(sizes.prod(1).astype(np.float64), both.shape)
    moved = (wanted - both).mean(1) * _item_bytes(result.shape)
    return np.where(parts > 1, _summed(result, wanted, both, parts), moved), (parts > 1) & (both < wanted).any(1)


def _summed(tensor: Operand | Result, wanted: Numbers, both: Numbers, parts: Numbers | int) -> Numbers:
    """Partial sums must meet, and reach each device that wants them.

    `both`: elements that a device holds a partial sum of and wants; several devices may hold the same.
    """
    dims = tensor.shape.dims
    elements = math.prod(size for dim, size in enumerate(dims) if dim not in tensor.broadcast_dims)
    received = received_elements(wanted.sum(1), elements, parts, np.minimum(both.sum(1), elements))
    return received / wanted.shape[1] * _item_bytes(tensor.shape)


def _item_bytes(shape: Shape) -> float:
    return shape.byte_size / shape.size


def _boxes(
    problem: ChoiceProblem, splits: Splits, tensor: Operand | Result, layout: Layout | None
) -> tuple[Numbers, Numbers]:
    """[split, device]: elements of the tile under each split, and how many of them are in the layout's tile, too.

    Along a broadcast dim one slice is all there is to know.
    """
    wanted = both = np.ones(splits.index.shape[:2])
    bounds = layout.bounds if layout is not None else None
    reversed_dims = tensor.reversed_dims if isinstance(tensor, Operand) else ()
    for dim, factors in enumerate(major_dims(tensor.dims, problem.signature)):
        size = tensor.shape.dims[dim]
        if dim in tensor.broadcast_dims:
            continue
        low, high = (bounds[0][:, dim], bounds[1][:, dim]) if bounds is not None else (0, size)
        if not factors:
            wanted, both = wanted * size, both * (high - low)
            continue
        start, end = splits.ends(factors[0], size, reverse=dim in reversed_dims)
        wanted = wanted * (end - start)
        both = both * np.maximum(0, np.minimum(end, high) - np.maximum(start, low))
    return wanted, both


def compute_seconds(problem: ChoiceProblem, splits: Splits, prices: Prices) -> Numbers:
    """[split]: seconds of one device's part of the op, as far as they count."""
    signature = problem.signature
    sizes = [f.size for f in signature.factors]
    computed = [n for n in range(len(sizes)) if divides_work(signature, n)]
    points = np.full(len(splits), float(problem.products_a_point))
    for n in computed:
        points *= -(-sizes[n] // splits.num_tiles[:, n])
    tensors = [(o.shape, o.dims) for o in problem.operands if not o.is_read_in_part]
    tensors += [(r.shape, r.dims) for r in problem.results] * problem.result_passes
    nbytes = sum((_tile_bytes(problem, splits, *tensor) for tensor in tensors if tensor[0].is_array), np.zeros(1))
    reduced = [f for f in range(len(sizes)) if is_reduced(signature, f)]
    plain, reducing = (prices.compute_seconds(points, nbytes * problem.memory_passes, how) for how in (False, True))
    is_reducing = reduces(signature) | (splits.num_tiles[:, reduced].prod(1) > 1)
    return np.where(is_reducing, reducing, plain)


def _tile_bytes(problem: ChoiceProblem, splits: Splits, shape: Shape, dims: Dims) -> Numbers:
    elements = np.ones(len(splits))
    for size, factors in zip(shape.dims, major_dims(dims, problem.signature), strict=True):
        elements = elements * (-(-size // splits.num_tiles[:, factors[0]]) if factors else size)
    return elements * (shape.byte_size / max(1, shape.size))
