"""Shardings put on values inside traced functions: any HloSharding, also those that no PartitionSpec can say.

Floor: frontends.  One JAX primitive per mark, with rules for jit, grad, vmap and loops; PartitionSpec and NamedSharding
go to JAX's own constraint.  In a trace for others the marks are identities; outside of all traces they lay arrays out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import AnnotationError, ShardingError
from hlosharding.frontends.jax.boundary import broadcast, divides
from hlosharding.frontends.jax.signature import is_key, of_numbers
from hlosharding.once import once
from hlosharding.sharding import HloSharding, ShardGroup, add_shape_dims

_group_ids = count(1)
_SHARDING, _ALIKE = "hlo_sharding", "hlo_shard_alike"
MARKS = frozenset({_SHARDING, _ALIKE, "custom_partitioning"})
"""Primitives that say how values lie, for ours or for XLA's partitioner."""


def with_sharding(x: Any, sharding: Any) -> Any:
    """`x` (an array or a pytree), constrained to a sharding inside a traced function.

    `sharding`: HloSharding, HLO text, an array of devices by tile coordinates (one more dim: copies of a tile),
    PartitionSpec, NamedSharding, None, or a prefix tree of them.  Works under jit, grad, vmap and scan; a batched dim
    is left open.  In a plain `jax.jit` an HloSharding that the mesh of the context cannot say has no effect.  Outside
    of a trace the array is laid out so on JAX's devices, if its tiles are even.  Raises AnnotationError where it does
    not fit.

    >>> import jax, jax.numpy as jnp
    >>> float(jax.grad(lambda x: with_sharding(x * x, "{maximal device=1}"))(3.0))
    6.0
    """
    import jax

    leaves, tree = jax.tree.flatten(x)
    if isinstance(sharding, HloSharding) and sharding.is_tuple():
        entries: Sequence[Any] = sharding.leaves
        if len(entries) != len(leaves):
            raise AnnotationError(f"{sharding} has {len(entries)} leaves for {len(leaves)} arrays")
    else:
        entries = broadcast(sharding, x, "sharding")
    return jax.tree.unflatten(tree, [_constrain(leaf, entry) for leaf, entry in zip(leaves, entries, strict=True)])


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """`x` and `y` (arrays or equal pytrees of equal shapes), to be sharded alike, whatever that will be.

    Raises AnnotationError for unequal shapes.

    >>> import jax.numpy as jnp
    >>> x, y = shard_alike(jnp.zeros(3), jnp.ones(3))
    """
    import jax

    xs, tree = jax.tree.flatten(x)
    ys, other = jax.tree.flatten(y)
    if tree != other:
        raise AnnotationError(f"shard_alike needs equal structures, got {tree} and {other}")
    for a, b in zip(xs, ys, strict=True):
        if np.shape(a) != np.shape(b):
            raise AnnotationError(f"shard_alike needs equal shapes, got {np.shape(a)} and {np.shape(b)}")
    pairs = [_bind_alike(a, b) for a, b in zip(xs, ys, strict=True)]
    return jax.tree.unflatten(tree, [a for a, _ in pairs]), jax.tree.unflatten(tree, [b for _, b in pairs])


def _constrain(x: Any, sharding: Any) -> Any:
    import jax
    from jax.core import Tracer

    if sharding is None:
        return x
    if isinstance(sharding, (jax.sharding.PartitionSpec, jax.sharding.Sharding)):
        return jax.lax.with_sharding_constraint(x, sharding)
    found = _as_hlo(sharding, np.shape(x))
    if is_key(x):
        numbers = _constrain(jax.random.key_data(x), of_numbers(found, x))
        return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(x))
    if xla_bridge.keeps_hlo_shardings():
        return _marked(x, found)
    named = _over_context_mesh(found)
    if named is not None:
        return jax.lax.with_sharding_constraint(x, named)
    if isinstance(x, Tracer) or xla_bridge.is_tracing():
        return _marked(x, found)  # nothing to others, and hs.jit finds it in what JAX traced
    return _placed(x, found)


def _marked(x: Any, sharding: HloSharding) -> Any:
    return _sharding_primitive().bind(x, sharding=str(sharding.without_names()), open_dims=())


def _placed(x: Any, sharding: HloSharding) -> Any:
    """An array outside of all traces, laid out on JAX's devices, as JAX's own constraint does there."""
    import jax

    devices = np.array(jax.devices(), dtype=object)
    if (sharding.num_devices or 1) > len(devices):
        raise AnnotationError(f"{sharding} names {sharding.num_devices} devices, and JAX has {len(devices)}")
    if sharding.is_maximal():
        return jax.device_put(x, devices[sharding.device])
    if sharding.kind == "replicated":
        grid = devices[: sharding.num_devices or len(devices)].reshape(*(1,) * np.ndim(x), -1)
    elif sharding.kind == "tiled" and set(sharding.subgroup_types) <= {"replicated"}:
        grid = devices[sharding.tiles.array.reshape(*sharding.data_dims, -1)]
    else:
        return x
    names = tuple(f"d{n}" for n in range(grid.ndim))
    named = jax.sharding.NamedSharding(jax.sharding.Mesh(grid, names), jax.sharding.PartitionSpec(*names[:-1]))
    # A jax array has even tiles; `hs.device_put` makes others.
    return jax.device_put(x, named) if divides(named, np.shape(x)) else x


def _as_hlo(sharding: Any, shape: tuple[int, ...]) -> HloSharding:
    try:
        if isinstance(sharding, str):
            sharding = HloSharding.parse(sharding)
        elif not isinstance(sharding, HloSharding):
            devices = np.asarray(sharding)
            is_partial = devices.ndim == len(shape) + 1
            sharding = HloSharding.partial_tile(devices) if is_partial else HloSharding.tile(devices)
        sharding.validate(shape)
    except ShardingError as error:
        raise AnnotationError(error.what, where=error.where, remedy=error.remedy) from error
    return sharding


def _over_context_mesh(sharding: HloSharding) -> Any:
    """The same as NamedSharding over the mesh of the context; None where there is none that can say it."""
    mesh = xla_bridge.context_mesh()
    if mesh is None:
        return None
    try:
        return sharding.to_jax(mesh)
    except ShardingError:
        return None


@once
def _sharding_primitive() -> Any:
    return xla_bridge.linear_identity(
        _SHARDING, transpose=_transpose_sharding, batch=_batch_sharding, lower=_lower_sharding
    )


def _transpose_sharding(cotangents: Sequence[Any], **params: Any) -> list[Any]:
    # As JAX's own constraint: the cotangent is laid out as the value.
    return [_sharding_primitive().bind(cotangents[0], **params)]


def _lower_sharding(_context: Any, x: Any, *, sharding: str, open_dims: tuple[int, ...]) -> list[Any]:
    return [xla_bridge.sharding_custom_call(x, sharding, open_dims) if xla_bridge.keeps_hlo_shardings() else x]


def _batch_sharding(
    args: Sequence[Any], dims: Sequence[int], *, sharding: str, open_dims: tuple[int, ...]
) -> tuple[Any, int]:
    dim = dims[0]
    found = HloSharding.parse(sharding)
    wider = add_shape_dims(found, dim, 1) if found.is_tiled() else found
    opened = (*(d + (d >= dim) for d in open_dims), dim)
    return _sharding_primitive().bind(args[0], sharding=str(wider), open_dims=tuple(sorted(opened))), dim


@once
def _alike_primitive() -> Any:
    return xla_bridge.linear_identity(
        _ALIKE, transpose=_transpose_alike, batch=_batch_alike, lower=_lower_alike, results=2
    )


def _bind_alike(x: Any, y: Any) -> Sequence[Any]:
    return _alike_primitive().bind(x, y, group=next(_group_ids))


def _transpose_alike(cotangents: Sequence[Any], **_: Any) -> Sequence[Any]:
    return _bind_alike(*cotangents)


def _lower_alike(_context: Any, x: Any, y: Any, *, group: int) -> list[Any]:
    if not xla_bridge.keeps_hlo_shardings():
        return [x, y]
    text = str(HloSharding.unknown().with_shard_group(ShardGroup("as", group)))
    return [xla_bridge.sharding_custom_call(value, text, is_group=True) for value in (x, y)]


def _batch_alike(args: Sequence[Any], dims: Sequence[int | None], *, group: int) -> tuple[Any, tuple[int, int]]:
    import jax.numpy as jnp

    batched = next(n for n, d in enumerate(dims) if d is not None)
    dim = dims[batched] or 0
    size = args[batched].shape[dim]
    spread = [
        jnp.broadcast_to(jnp.expand_dims(a, dim), (*a.shape[:dim], size, *a.shape[dim:]))
        if d is None
        else jnp.moveaxis(a, d, dim)
        for a, d in zip(args, dims, strict=True)
    ]
    return _alike_primitive().bind(*spread, group=group), (dim, dim)


# ---- regions of a traced function that may need no communication: marked by a scope, which op names keep


_SCOPE, _WITH_GRADIENTS = "hlosharding.no_communication", "hlosharding.no_communication_nor_gradients"
_OF_A_GRADIENT = "transpose("
"""How JAX names the backward pass."""


@contextmanager
def no_communication(*, gradients: bool = False) -> Iterator[None]:
    """Ops in this region of a traced function, or in the function that it decorates, may need no collective.

    What breaks it is a PartitionError when the program is partitioned (`hs.partition`, `hs.jit`, the command line): the
    collective, its line and bytes, and the annotations on both sides.  Whatever makes the pieces of a value in the
    region fit is meant: to gather an operand of its ops, to add up their partial results, also where that happens
    later; collectives that the user wrote himself, too.  Values may be laid out anew before the region, and after.
    Where the cheapest program would move data in the region only to spread work, the one that follows propagation alone
    (`PartitionOptions(only_propagated=True)`) is taken.

    It goes through jit, vmap, scan and checkpoint.  Of `jax.grad` around the region only the forward pass is meant, for
    gradients of weights are added up over the batch; `gradients=True` means the backward pass, too.  In a plain
    `jax.jit` it has no effect.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> @no_communication()
    ... def norms(x):
    ...     return (x * x).sum(1)
    >>> rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    >>> hs.partition(hs.trace(norms, in_shardings=rows)(jnp.ones((4, 8)))).collectives
    []
    >>> hs.partition(hs.trace(norms, in_shardings=columns)(jnp.ones((4, 8))))
    Traceback (most recent call last):
    ...
    hlosharding.errors.PartitionError: 1 collective, 16 bytes, where hs.no_communication() allows none:...
    """
    import jax

    with jax.named_scope(_WITH_GRADIENTS if gradients else _SCOPE):
        yield


def may_not_communicate(op_name: str) -> bool:
    """Does an op of that name lie in such a region?

    >>> may_not_communicate("jit(f)/jvp(hlosharding.no_communication)/dot")
    True
    >>> may_not_communicate("jit(f)/transpose(jvp(hlosharding.no_communication))/dot")
    False
    """
    before, scope, after = op_name.partition(_SCOPE)
    return bool(scope) and (_OF_A_GRADIENT not in before or after.startswith(_WITH_GRADIENTS.removeprefix(_SCOPE)))
