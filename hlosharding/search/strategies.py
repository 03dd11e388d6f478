"""Strategies: which dims of a step's arguments are split over its data ways, and which over its tensor ways.

Floor: search.  A strategy says specs; what they mean on devices, and whether they fit, `split_arguments` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hlosharding.errors import AnnotationError, ScheduleError
from hlosharding.frontends import annotate
from hlosharding.ir import Instruction, Module, is_sharding_call, rewrite
from hlosharding.propagation import propagate
from hlosharding.schedule import arguments_by_name, is_layout_call
from hlosharding.search.plans import CONTEXT, EXPERTS, REPLICAS
from hlosharding.search.tensor_parallel import expert_dims, tensor_splits
from hlosharding.search.updates import find_only_updated, lay_updated_alike
from hlosharding.sharding import REPLICATED, HloSharding, MeshInfo, axes_by_dim, axis_of, replicate_on_dims, uneven_dims

Ways = Mapping[str, int]
"""Mesh axes, the outermost first, and their sizes: of plans "data" and "tensor", `REPLICAS` where data ways hold
copies of what others split, `CONTEXT` where they have parts of sequences, `EXPERTS` where they have other experts."""
Specs = Mapping[str | int, Any] | Mapping[str, Any] | Mapping[int, Any]
"""Arguments, by path (that of a tree stands for all in it) or number, and a PartitionSpec over the ways for each."""
_LEAVE_OUT = "leave this way to split out of the plan"
Strategy = Callable[[Module, Ways, frozenset[int]], Specs]
"""(program, ways, numbers of the batch arguments) to specs; what it does not name takes what suits."""


def over_batch(axis: str) -> Strategy:
    """The first dim of the batch arguments over an axis, and over those of a plan's replicas and experts, if it has
    some."""

    def strategy(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        axes = [each for each in (REPLICAS, axis, EXPERTS) if each in ways]
        return {number: spec_of({0: axes}) for number in batch}

    return strategy


def over_sequences(axis: str) -> Strategy:
    """The second dim of the batch arguments over an axis, if ways have it.  Raises ScheduleError where none has one."""

    def strategy(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        if ways.get(axis, 1) == 1:
            return {}
        long = [p for p in module.entry.parameters if p.parameter_number in batch and p.shape.rank > 1]
        if not long:
            raise ScheduleError(f"no batch argument has a second dim to be split over {axis!r}", remedy=_LEAVE_OUT)
        for parameter in long:
            _check_sequences(parameter, ways[axis])
        return {parameter.parameter_number: spec_of({1: (axis,)}) for parameter in long}

    return strategy


def _check_sequences(parameter: Instruction, ways: int) -> None:
    """Raises ScheduleError unless all parts of sequences, or of all slices that are read of them, are of one size."""
    if any(value.shape.dims[1] % ways for value in _values_read(parameter)):
        raise ScheduleError(
            f"sequences of {parameter.shape} are not cut into {ways} equal parts",
            where=place_of_argument(parameter),
            remedy="take a length that is divided, be it that of inputs and labels, slices of what is one longer",
        )


def _values_read(parameter: Instruction) -> list[Instruction]:
    """The slices of which an argument is read, where there is nothing else; else itself."""
    slices = [user for user in parameter.users if user.opcode == "slice"]
    return slices if len(slices) == len(parameter.users) else [parameter]


def over_weights(axis: str) -> Strategy:
    """Weights over an axis, each along the dim that its readers ask for (`tensor_splits`)."""

    def strategy(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        count, sizes = ways[axis], {p.parameter_number: p.shape.dims for p in module.entry.parameters}
        splits = tensor_splits(module, count, batch=batch, experts=ways.get(EXPERTS, 1)) if count > 1 else {}
        return {number: spec_of({dim: (_part(axis, count, sizes[number][dim]),)}) for number, dim in splits.items()}

    return strategy


def _part(axis: str, ways: int, size: int) -> str:
    """Of an axis as much as splits a dim: keys' heads that are fewer than the ways lie on several of them."""
    # With such weights left whole a small Llama moved 3.04 MB on four ways, so it moves 1.28.
    return axis if size % ways == 0 else f"{axis}:(1){size}"


def over_experts(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """Weights of experts over a plan's ways of experts, along the dim of experts.  Raises ScheduleError where there are
    none."""
    if ways.get(EXPERTS, 1) == 1:
        return {}
    splits = expert_dims(module, ways[EXPERTS], batch=batch)
    if not splits:
        what = f"no weight has a dim of experts, one for each index of a product, that {ways[EXPERTS]} ways divide"
        raise ScheduleError(what, remedy=_LEAVE_OUT)
    return {number: spec_of({dim: (EXPERTS,)}) for number, dim in splits.items()}


def compose(*strategies: Strategy) -> Strategy:
    """All of them, one after the other: a dim that several split has the axes of all, the first one's outermost."""

    def strategy(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        return join_specs(module, *(each(module, ways, batch) for each in strategies))

    return strategy


def join_specs(module: Module, *specs: Specs) -> dict[int, Any]:
    """All of them, by number of argument; of a dim that several split the first one's axes are the outermost."""
    found: dict[int, dict[int, tuple[str, ...]]] = {}
    for each in specs:
        for number, spec in number_specs(module, each).items():
            dims = found.setdefault(number, {})
            # JAX refuses a spec that names an axis twice; a part of an axis (tensor:(1)8) counts as the axis.
            used = {axis_of(axis) for axes in dims.values() for axis in axes}
            for dim, axes in axes_of(spec).items():
                dims[dim] = dims.get(dim, ()) + tuple(axis for axis in axes if axis_of(axis) not in used)
    return {number: spec_of(dims) for number, dims in found.items()}


BATCH = compose(over_batch("data"), over_sequences(CONTEXT))
"""How the batch lies where a strategy says nothing of it."""
_MEGATRON = compose(BATCH, over_experts, over_weights("tensor"))


def megatron(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """The batch over data, weights over tensor, by columns and by rows in turn (Shoeybi et al. 2019).

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(*map(jnp.ones, [(4, 8), (8, 4), (2, 4)]))
    >>> {number: tuple(spec) for number, spec in megatron(mlp, {"data": 2, "tensor": 4}, frozenset({2})).items()}
    {2: ('data',), 0: (None, 'tensor'), 1: ('tensor',)}
    """
    return _MEGATRON(module, ways, batch)


def fsdp(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """`megatron`, and all floating-point arguments but the batch over data as well, along the largest dim that divides
    (ZeRO-3: Rajbhandari et al. 2020, Zhao et al. 2023): gathered where they are read, gradients reduced to pieces.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(*map(jnp.ones, [(4, 8), (8, 4), (2, 4)]))
    >>> {number: tuple(spec) for number, spec in fsdp(mlp, {"data": 2, "tensor": 4}, frozenset({2})).items()}
    {2: ('data',), 0: ('data', 'tensor'), 1: ('tensor', 'data')}
    """
    numbers = frozenset(parameter.parameter_number for parameter in module.entry.parameters)
    return _also_over_data(module, ways, batch, numbers - batch)


def zero2(module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
    """`megatron`, and the optimizer's state over data as well (ZeRO-2): gradients are reduced to the pieces whose
    weights a device updates, and the weights gathered.  State that is not split over data lies as its weights do.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, m, x):
    ...     m = 0.9 * m + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
    ...     return w - m, m
    >>> traced = hs.trace(step)(*map(jnp.ones, [(4, 2), (4, 2), (8, 4)]))
    >>> {n: tuple(spec) for n, spec in sorted(zero2(traced, {"data": 2, "tensor": 1}, frozenset({2})).items())}
    {0: (), 1: ('data',), 2: ('data',)}
    """
    state = find_only_updated(module)
    floating = (p.parameter_number for p in module.entry.parameters if p.shape.is_floating)
    # Said of them, since what no spec names takes what suits: weights would be split as the state that updates them is.
    # Not of state that cannot be split over data: GPT 6.7B as 1/4/4/64 on V100s then took 27.8 GB, by megatron 11.4.
    whole = {number: spec_of({}) for number in floating if number not in batch | state}
    return whole | number_specs(module, _also_over_data(module, ways, batch, state))


def _also_over_data(module: Module, ways: Ways, batch: frozenset[int], numbers: frozenset[int]) -> Specs:
    """`megatron`, with these arguments split over data, too."""
    specs: dict[Any, Any] = {**megatron(module, ways, batch)}
    if any(ways.get(axis, 1) > 1 for axis in _SHARING):
        lies = _propagated_axes(split_arguments(module, ways, specs), ways)
        for parameter in module.entry.parameters:
            number = parameter.parameter_number
            dims = lies.get(number, {})
            axes = _axes_sharing(dims, ways) if number in numbers and parameter.shape.is_floating else ()
            dim = _largest_dim(parameter, dims, axes, ways) if axes else None
            if dim is not None:
                specs[number] = spec_of({**dims, dim: (*dims.get(dim, ()), *axes)})
    return specs


_SHARING = ("data", CONTEXT, EXPERTS)
"""The axes over which weights may be split and gathered: of devices that have other parts of the batch."""


def _axes_sharing(split_already: Mapping[int, Sequence[str]], ways: Ways) -> tuple[str, ...]:
    """Of an argument; experts are split over theirs already."""
    used = {axis for axes in split_already.values() for axis in axes}
    left = tuple(axis for axis in _SHARING if ways.get(axis, 1) > 1 and axis not in used)
    return () if used & {"data", CONTEXT} else left


@dataclass(frozen=True)
class SummedWhole:
    """A strategy by which what the microbatches add up is reduced once, behind the last one: until then each device has
    its own sums, whole over the data ways."""

    strategy: Strategy
    over: ClassVar[tuple[str, ...]] = ("data", CONTEXT)

    def __call__(self, module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        return self.strategy(module, ways, batch)


def sum_as(model: Strategy, strategy: Strategy) -> Strategy:
    """A strategy, with sums reduced when those of the model are."""
    return SummedWhole(strategy) if isinstance(model, SummedWhole) else strategy


STRATEGIES: Mapping[str, Strategy] = {"megatron": megatron, "fsdp": fsdp, "zero1": SummedWhole(zero2), "zero2": zero2}
"""Those that are there, by name.  `zero1` is `zero2` but for gradients: they are reduced to pieces once, not by every
microbatch (ZeRO-1)."""


def split_arguments(module: Module, ways: Ways, *specs: Specs) -> Module:
    """The program with the shardings that specs mean on devices that form a mesh of the ways; later ones win.

    Raises ScheduleError for an argument that is not there, AnnotationError for a spec that does not fit it.
    """
    mesh = mesh_of(ways)
    parameters = {p.parameter_number: p for p in module.entry.parameters}
    wanted = {number: spec for each in specs for number, spec in number_specs(module, each).items()}
    made = annotate(module, {parameters[number].name: spec for number, spec in wanted.items()}, mesh=mesh)
    said = {p.id: made.shardings[p.id] for p in made.entry.parameters if p.parameter_number in wanted}
    constraints = dict(_constraints(made, module, mesh))
    # Left without a sharding such a call is refused by propagation, which fsdp, zero1 and zero2 ask where weights lie.
    for call in [inst for inst in made.instructions if is_sharding_call(inst) and inst not in constraints]:
        rewrite.change_opcode(call, "copy")  # of other axes, or of some dims alone: it says nothing here
    said |= {call.id: sharding for call, sharding in constraints.items()}
    # Not the mesh of the ways, by which `annotate` read the specs: of a module's mesh the partitioner wants names for
    # results that lie as suits, and nobody asks here for names over the ways.
    made.mesh, made.num_partitions = module.mesh, mesh.num_devices
    made.shardings = said if mesh.num_devices > 1 else {}
    lay_updated_alike(made)
    for parameter in made.entry.parameters:
        _split_slices(parameter)
        _check_divides(parameter, made.sharding(parameter) or REPLICATED)
    return made


def _split_slices(parameter: Instruction) -> None:
    """Of an argument that does not divide let the slices be split that do: of what is one longer, inputs and labels."""
    module, slices = parameter.module, _values_read(parameter)
    sharding = module.sharding(parameter) or REPLICATED
    uneven = uneven_dims(sharding, parameter.shape.dims)
    if uneven and not any(uneven_dims(sharding, value.shape.dims) for value in slices):
        module.shardings.update(dict.fromkeys((value.id for value in slices), sharding))
        module.shardings[parameter.id] = replicate_on_dims(sharding, uneven)


def _constraints(made: Module, module: Module, mesh: MeshInfo) -> Iterator[tuple[Instruction, HloSharding]]:
    """The program's own constraints, of loops, too, where all axes of theirs are ways by name: without the others a dim
    would be whole that the writer splits."""
    if module.mesh is None:
        return
    for given, call in zip(module.instructions, made.instructions, strict=True):
        sharding = module.sharding(given) if is_layout_call(given) else None
        said = {} if sharding is None else axes_by_dim(sharding, module.mesh)
        if said and {axis for axes in said.values() for axis in axes} <= set(mesh.names):
            yield call, HloSharding.unnamed(mesh, spec_of(said), call.shape.rank)


def _check_divides(parameter: Instruction, sharding: HloSharding) -> None:
    """Raises AnnotationError where pieces are not of one size: stages hand on equal tiles."""
    for dim in uneven_dims(sharding, parameter.shape.dims):
        raise AnnotationError(
            f"dim {dim} of {parameter.shape} is not cut into {sharding.num_tiles_along(dim)} equal pieces",
            where=f"{place_of_argument(parameter)}, as {sharding}",
            remedy="let the strategy split another dim, or none, where `ways` does not divide it",
        )


def place_of_argument(parameter: Instruction) -> str:
    """Where an error says that an argument stands: its path, and the first source line that reads it."""
    path = parameter.path
    line = next((user.location for user in parameter.users if user.location), None)
    return f"{path}, read at {line}" if line else path


def number_specs(module: Module, specs: Specs) -> dict[int, Any]:
    """Specs of single arguments.  Raises ScheduleError for one that is not there."""
    numbers = arguments_by_name(module, specs)
    return {number: spec for name, spec in specs.items() for number in numbers[name]}


def axes_of(spec: Sequence[Any]) -> dict[int, tuple[str, ...]]:
    """Of a PartitionSpec the axes of each dim that is split."""
    found = {dim: (entry,) if isinstance(entry, str) else tuple(entry or ()) for dim, entry in enumerate(spec)}
    return {dim: axes for dim, axes in found.items() if axes}


def spec_of(axes: Mapping[int, Sequence[str]]) -> Any:
    """The PartitionSpec of dims split over axes."""
    from jax.sharding import PartitionSpec

    entries = [tuple(axes.get(dim, ())) for dim in range(max(axes, default=-1) + 1)]
    return PartitionSpec(*(entry[0] if len(entry) == 1 else entry or None for entry in entries))


def mesh_of(ways: Ways) -> MeshInfo:
    """Of the devices of a stage."""
    return MeshInfo(tuple(ways), tuple(ways.values()))


def propagate_shardings(annotated: Module) -> Mapping[str, HloSharding | None]:
    """The sharding of each value by name: of arguments those that were said, and what suits for all others."""
    is_open = [annotated.sharding(parameter) is None for parameter in annotated.entry.parameters]
    return propagate(annotated, to_outputs=True, to_parameters=is_open).shardings


def _propagated_axes(annotated: Module, ways: Ways) -> dict[int, dict[int, tuple[str, ...]]]:
    """The axes of each argument's dims as propagation spreads them: moments lie as what they are of."""
    mesh, shardings = mesh_of(ways), propagate_shardings(annotated)
    found = {p.parameter_number: shardings[p.name] for p in annotated.entry.parameters}
    return {number: axes_by_dim(lies, mesh) for number, lies in found.items() if lies is not None}


def _largest_dim(
    parameter: Instruction, split_already: Mapping[int, Sequence[str]], axes: Sequence[str], ways: Ways
) -> int | None:
    """The dim with most elements a device that axes divide."""
    left = dict(enumerate(parameter.shape.dims))
    for dim, found in split_already.items():
        left[dim] //= math.prod(map(mesh_of(ways).size_of, found))
    count = math.prod(ways[axis] for axis in axes)
    dims = [dim for dim, size in left.items() if size and size % count == 0]
    # Two axes on one dim would be one split for propagation, which keeps or loses both.
    free = [dim for dim in dims if dim not in split_already]
    return max(free or dims, key=lambda dim: left[dim], default=None)
