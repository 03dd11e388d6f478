"""The batch stays split wherever it flows, and what else its arguments are split along, as sequences are.

Floor: schedule.  A strategy says how arguments lie.  What lies between them propagation decides, and where weights are
split over the devices that share the batch (FSDP, ZeRO), their split would spread to the activations, which then lose
that of the batch: gathered activations instead of gathered weights.  So the values that ops with a choice make, and
what loops carry, keep the batch's split, as `with_sharding_constraint(x, P("data", UNCONSTRAINED))` says by hand.

Axes of weights are the other way round: a value that the heads, columns or experts of a weight reach is split along
these, and the batch or the sequence has that axis before and behind (Korthikanti et al. 2022, Lepikhin et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from hlosharding.frontends import constrain
from hlosharding.ir import ELEMENTWISE, INDEXED, Instruction, Module
from hlosharding.schedule.cutting.batch_flow import Dims, find_batch_flow
from hlosharding.sharding import HloSharding, MeshInfo, axes_by_dim, axis_of

_CHOOSES = INDEXED | {"convolution", "dot"}
"""Ops that could as well be split along another dim."""
_CALLS = frozenset({"call", "custom-call"})
"""Propagation carries no sharding from what a custom call reads to what it gives."""


@dataclass(frozen=True)
class StageAxes:
    """The mesh of a stage's devices."""

    mesh: MeshInfo
    of_weights: frozenset[str] = frozenset()
    """Those that are of weights first, where both they and the batch are split over them."""
    of_calls: frozenset[str] = frozenset()
    """Those of weights alone that what flash attention gives is split over: propagation does not say so."""
    sums_whole: frozenset[str] = frozenset()
    """Those over which what the microbatches add up stays whole, until the last one has run (ZeRO-1)."""

    @classmethod
    def of_tiles(cls, shardings: Iterable[HloSharding | None]) -> StageAxes:
        """Where no mesh is known: an axis for each dim of the first array that is split."""
        tiles = next((each.tiles for each in shardings if each is not None and each.is_tiled()), None)
        if tiles is None:
            return cls(MeshInfo((), ()))
        return cls(MeshInfo(tuple(map(str, range(len(tiles.dims)))), tiles.dims, tiles))


def sharding_as_read(parameter: Instruction, said: Callable[[Instruction], HloSharding | None]) -> HloSharding | None:
    """How an argument lies; where slices of it are split that it is not itself, for being one longer, how these do."""
    slices = (said(user) for user in parameter.users if user.opcode == "slice")
    return next((sharding for sharding in slices if sharding is not None), said(parameter))


class SplitFlow(NamedTuple):
    """What is split over mesh axes, and stays split wherever it flows."""

    axes: tuple[str, ...]
    dims: tuple[int | None, ...]
    """Of each parameter the dim along which it enters."""
    is_batch: bool = True
    """Or of weights."""
    is_of_calls: bool = False
    """Does it count for what calls give alone?"""

    @property
    def entering(self) -> dict[int, int]:
        """The same by number of parameters, of those along which it does."""
        return {number: dim for number, dim in enumerate(self.dims) if dim is not None}


def flows_of(batch: Mapping[int, int], shardings: Sequence[HloSharding | None], axes: StageAxes) -> list[SplitFlow]:
    """What flows: the batch, and each other dim along which its parameters are split, as sequences are; and first what
    weights are split along, of axes that these have, too.

    `batch`: of parameters by number, the dim.  `shardings`: of all parameters.

    >>> rows, labels, w = (HloSharding.parse(f"{{devices={text}}}") for text in ("[2,4]<=[8]", "[8]<=[8]", "[8]<=[8]"))
    >>> axes = StageAxes(MeshInfo(("data", "tensor"), (2, 4)), frozenset({"tensor"}))
    >>> for flow in flows_of({0: 0}, [rows, w], axes): print(*flow[:3])
    ('tensor',) (None, 0) False
    ('data',) (0, None) True
    ('tensor',) (1, None) True
    """
    said = [axes_by_dim(sharding, axes.mesh) if sharding is not None else {} for sharding in shardings]
    found: dict[int, SplitFlow] = {}
    for number, dim in ((n, dim) for n in batch for dim in said[n]):
        is_batch = dim == batch[number]
        # The batch may be another dim in each argument, what else they are split along is the same one in all: so the
        # batch has a key of its own, which stands first in order.
        others = {n: dim for n in batch if dim in said[n]}
        entering = map((batch if is_batch else others).get, range(len(said)))
        found.setdefault(-1 if is_batch else dim, SplitFlow(said[number][dim], tuple(entering)))
    of_batch = [found[dim] for dim in sorted(found)]
    used = frozenset(axis for flow in of_batch for axis in flow.axes)
    weights = [dims if number not in batch else {} for number, dims in enumerate(said)]
    # Sorted: a set of texts comes in another order in each process, and plans with it.
    shared = (_flow_of_weights(axis, weights) for axis in sorted(axes.of_weights & used))
    of_calls = (_flow_of_weights(axis, weights)._replace(is_of_calls=True) for axis in sorted(axes.of_calls - used))
    return [*shared, *of_batch, *(flow for flow in of_calls if flow.entering)]


def _flow_of_weights(axis: str, said: Iterable[Mapping[int, tuple[str, ...]]]) -> SplitFlow:
    """Where weights are split over it."""
    of_each = (next((d for d, axes in dims.items() if axis in map(axis_of, axes)), None) for dims in said)
    return SplitFlow((axis,), tuple(of_each), False)


def walk_flows(module: Module, flows: Sequence[SplitFlow]) -> list[Mapping[Instruction, Dims]]:
    """Of each flow the dims along which it lies."""
    found = {flow: find_batch_flow(module, flow.entering) for flow in flows if flow.is_batch}
    reached = {inst for walked in found.values() for inst, dims in walked.items() if set(dims) != {None}}
    return [found[flow] if flow.is_batch else find_batch_flow(module, flow.entering, reached) for flow in flows]


def keep_split(module: Module, mesh: MeshInfo, flows: Sequence[SplitFlow]) -> dict[Instruction, Instruction]:
    """Constrain all that the batch reaches to its splits, in place; the constraint of each value that has one."""
    return constrain(module, splits_of(module, mesh, flows, walk_flows(module, flows)))


def splits_of(
    module: Module, mesh: MeshInfo, flows: Sequence[SplitFlow], found: Sequence[Mapping[Instruction, Dims]]
) -> dict[Instruction, tuple[HloSharding, Sequence[int]]]:
    """Of all that the batch reaches its splits: an axis is where the first flow is that has it.  Other dims, which are
    named beside, stay open.

    `found`: where the flows lie (`walk_flows`).
    """
    # Values that are split alike share a sharding, so that they compare and hash as one (a listed plan took 0.9 of the
    # time, slices of sums that go together included).
    sharding_of = cache(partial(HloSharding.unnamed, mesh))
    wanted: dict[Instruction, tuple[HloSharding, Sequence[int]]] = {}
    # Each walk comes across every instruction, so that the keys of the first one are those of all.
    for inst in filter(_is_kept, found[0] if found else ()):
        is_given = _is_given_by_call(inst)
        dims = ((flow, dims[inst][0]) for flow, dims in zip(flows, found, strict=True))
        here = [(flow, dim) for flow, dim in dims if is_given or not flow.is_of_calls]
        if any((flow.is_batch or flow.is_of_calls) and dim is not None for flow, dim in here):
            spec = _spec_of(inst, here, mesh)
            open_dims = [dim for dim, axes in enumerate(spec) if not axes]
            if len(open_dims) < len(spec):
                wanted[inst] = sharding_of(spec), open_dims
    # Flows of weights that share axes with the batch stand first.  Without any, rows in sorted order may stay split.
    if found and not (flows[0].is_batch or flows[0].is_of_calls):
        wanted |= dict(_sorted_rows(module, mesh, flows, found))
    return wanted


def _sorted_rows(
    module: Module, mesh: MeshInfo, flows: Sequence[SplitFlow], found: Sequence[Mapping[Instruction, Dims]]
) -> Iterator[tuple[Instruction, tuple[HloSharding, list[int]]]]:
    """Where tokens of the batch are sorted, what lies in that order up to a product, and is made by none: rows may be
    of any expert, so they are whole over the axes that the batch shares with weights."""
    flow, dims = next((flow, dims) for flow, dims in zip(flows, found, strict=True) if flow.is_batch)
    of_weights = {axis for each in flows if not each.is_batch for axis in each.axes}
    left = tuple(axis for axis in flow.axes if axis not in of_weights)
    sorts = {inst: inst.dimensions[0] for inst in dims if inst.opcode == "sort"}
    entering = {sort: dim for sort, dim in sorts.items() if dims[sort.operands[0]] == (dim,)}
    made_by_products: set[Instruction] = set()
    for inst, (dim, *_) in find_batch_flow(module, {}, sorts=entering).items() if entering else ():
        if inst.opcode == "dot" or (inst.opcode in ELEMENTWISE and not made_by_products.isdisjoint(inst.operands)):
            made_by_products.add(inst)
        elif dim is not None and inst.shape.is_array:
            spec = [left if at == dim else () for at in range(inst.shape.rank)]
            yield inst, (HloSharding.unnamed(mesh, spec), [at for at in range(inst.shape.rank) if at != dim])


def _spec_of(
    inst: Instruction, here: Sequence[tuple[SplitFlow, int | None]], mesh: MeshInfo
) -> tuple[tuple[str, ...], ...]:
    """The axes of each dim."""
    spec: list[tuple[str, ...]] = [()] * inst.shape.rank
    for flow, dim in here:
        used = {axis_of(axis) for axes in spec for axis in axes}
        left = tuple(axis for axis in flow.axes if axis not in used)
        if dim is None:
            continue
        size, ways = inst.shape.dims[dim], math.prod(map(mesh.size_of, spec[dim] + left))
        if size % ways == 0:
            spec[dim] += left
        elif (
            not flow.is_batch and size > 1 and ways % size == 0
        ):  # a few of the weights' heads, on several devices each
            # Left whole, keys of few heads made a small Llama on four devices move 3.04 MB in place of 1.28.
            spec[dim] += tuple(f"{axis}:(1){size}" for axis in left)
    return tuple(spec)


def _is_kept(inst: Instruction) -> bool:
    """An op that could be split otherwise, an array of a loop's carry, or one that a call gives."""
    source = inst.operands[0].opcode if inst.opcode == "get-tuple-element" else ""
    is_carried = source == "parameter" and inst.computation is not inst.module.entry
    return inst.shape.is_array and (inst.opcode in _CHOOSES or is_carried or _is_given_by_call(inst))


def _is_given_by_call(inst: Instruction) -> bool:
    return inst.opcode == "get-tuple-element" and inst.operands[0].opcode in _CALLS
