"""The edges of the program: which outputs and parameters may keep what propagation found for them.

Floor: propagation.  Follows the closing half of XLA's ShardingPropagation::Run.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlosharding.errors import PropagationError
from hlosharding.ir import Shape
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.propagation.op_view import element_sharding, leaf_range
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class OpenBoundary:
    """Which outputs and parameters may be given shardings, and what they had before."""

    to_outputs: tuple[bool, ...]
    to_parameters: tuple[bool, ...]
    root_leaves: tuple[HloSharding, ...] = ()
    """Shardings of a tuple root's leaves, if outputs may change and it has any."""
    parameters: tuple[HloSharding | None, ...] = ()

    @property
    def any_output(self) -> bool:
        return any(self.to_outputs)

    @property
    def any_parameter(self) -> bool:
        return any(self.to_parameters)


def save(graph: PropagationGraph, to_outputs: tuple[bool, ...], to_parameters: tuple[bool, ...]) -> OpenBoundary:
    """Remember the shardings at the edges, once annotations are read; checks the sizes of both vectors."""
    root = graph.sharding[graph.entry_root]
    is_tuple = graph.instructions[graph.entry_root].shape.is_tuple
    leaves = root.tuple_elements if any(to_outputs) and is_tuple and root is not None else ()
    parameters = graph.parameters[graph.entry]
    saved = tuple(graph.sharding[i] for i in parameters) if any(to_parameters) else ()
    boundary = OpenBoundary(to_outputs, to_parameters, leaves, saved)
    _check(graph, boundary)
    return boundary


def _check(graph: PropagationGraph, boundary: OpenBoundary) -> None:
    root = graph.sharding[graph.entry_root]
    size = len(boundary.to_outputs)
    if boundary.any_output and root is not None and size not in (1, len(root.tuple_elements)):
        raise PropagationError(
            f"to_outputs has {size} entries, the result has {len(root.tuple_elements)} sharded leaves",
            remedy="give one bool, or one per leaf of the result",
        )
    parameters = graph.parameters[graph.entry]
    size = len(boundary.to_parameters)
    if not boundary.any_parameter or size in (1, len(parameters)):
        return
    shape = graph.instructions[parameters[0]].shape if len(parameters) == 1 else None
    if shape is None or not shape.is_tuple or size != len(shape.tuple_shapes):
        raise PropagationError(
            f"to_parameters has {size} entries, the program has {len(parameters)} parameters",
            remedy="give one bool, or one per parameter",
        )


def restore(graph: PropagationGraph, boundary: OpenBoundary) -> None:
    """Give back what may not change, then replicate what its tiling does not divide evenly."""
    _restore_root(graph, boundary)
    if boundary.any_parameter:
        _restore_parameters(graph, boundary)
    if boundary.any_output:
        _even_root(graph, boundary.to_outputs)
    if boundary.any_parameter:
        _even_parameters(graph, boundary.to_parameters)


def _restore_root(graph: PropagationGraph, boundary: OpenBoundary) -> None:
    root, saved = graph.entry_root, boundary.root_leaves
    sharding = graph.sharding[root]
    if not saved or len(saved) != len(boundary.to_outputs) or sharding is None:
        return
    leaves = [
        now if allowed or before.is_unknown() else before
        for now, before, allowed in zip(sharding.tuple_elements, saved, boundary.to_outputs, strict=True)
    ]
    graph.sharding[root] = HloSharding.tuple(leaves)


def _restore_parameters(graph: PropagationGraph, boundary: OpenBoundary) -> None:
    parameters, allowed = graph.parameters[graph.entry], boundary.to_parameters
    if len(allowed) == len(parameters):
        for i, may, before in zip(parameters, allowed, boundary.parameters, strict=True):
            if not may:
                graph.sharding[i] = before if before is not None and not before.is_unknown() else None
        return
    shape = graph.instructions[parameters[0]].shape if len(parameters) == 1 else None
    before = boundary.parameters[0] if len(parameters) == 1 else None
    now = graph.sharding[parameters[0]] if parameters else None
    if shape is None or before is None or now is None or not shape.is_tuple or len(shape.tuple_shapes) != len(allowed):
        return
    leaves = list(now.tuple_elements)
    for n, may in enumerate(allowed):
        part = element_sharding(before, shape, n)
        if not may and not part.is_unknown():
            leaves[n] = part  # XLA writes at the element's number, as for a flat tuple
    graph.sharding[parameters[0]] = HloSharding.tuple(leaves)


def _even_root(graph: PropagationGraph, allowed: tuple[bool, ...]) -> None:
    root = graph.entry_root
    shape, sharding = graph.instructions[root].shape, graph.sharding[root]
    if sharding is None:
        return
    if not shape.is_tuple:
        if not divides_evenly(shape, sharding):
            graph.sharding[root] = HloSharding.replicate()
    elif len(allowed) == len(shape.tuple_shapes):
        graph.sharding[root] = _even_elements(shape, sharding, allowed)


def _even_parameters(graph: PropagationGraph, allowed: tuple[bool, ...]) -> None:
    parameters = graph.parameters[graph.entry]
    if len(allowed) == len(parameters):
        for i, may in zip(parameters, allowed, strict=True):
            sharding = graph.sharding[i]
            if may and sharding is not None and not divides_evenly(graph.instructions[i].shape, sharding):
                graph.sharding[i] = HloSharding.replicate()
        return
    if len(parameters) != 1:
        return
    shape, sharding = graph.instructions[parameters[0]].shape, graph.sharding[parameters[0]]
    if sharding is not None and shape.is_tuple and len(shape.tuple_shapes) == len(allowed):
        graph.sharding[parameters[0]] = _even_elements(shape, sharding, allowed)


def _even_elements(shape: Shape, sharding: HloSharding, allowed: tuple[bool, ...]) -> HloSharding:
    leaves = list(sharding.tuple_elements)
    for n, may in enumerate(allowed):
        if may and not divides_evenly(shape.tuple_shapes[n], leaves[leaf_range(shape, n)[0]]):
            leaves[n] = HloSharding.replicate()
    return HloSharding.tuple(leaves)


def divides_evenly(shape: Shape, sharding: HloSharding) -> bool:
    """Are all tiles full?

    >>> divides_evenly(Shape.parse("f32[6]"), HloSharding.iota_tile((4,)))
    False
    """
    if sharding.is_tuple():
        parts = (element_sharding(sharding, shape, n) for n in range(len(shape.tuple_shapes)))
        return all(map(divides_evenly, shape.tuple_shapes, parts))
    if not sharding.is_tiled():
        return True
    # Not strict: behind the data dims stand those of subgroups, which split no dim of the shape.
    return all(size % ways == 0 for size, ways in zip(shape.dims, sharding.tiles.dims, strict=False))
