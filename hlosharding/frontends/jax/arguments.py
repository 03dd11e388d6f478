"""The arguments of a function to trace: what JAX is handed, and each one's shape and sharding.

Floor: frontends.  Knows pytrees and the ways users spell a sharding; nothing of HLO modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlosharding.errors import TraceError
from hlosharding.frontends.jax import boundary
from hlosharding.frontends.jax.leaves import is_one_array, of_numbers
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call's arguments: those handed to JAX, and what each flat dynamic one is."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tree: Any
    avals: tuple[Any, ...]
    shardings: tuple[HloSharding | None, ...]
    mesh: Any


def arguments_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int, ...], in_shardings: Any, mesh: Any
) -> Arguments:
    """The arguments of a call to trace: `in_shardings` go before those that arrays bring.  Raises TraceError."""
    import jax

    fixed = {n % len(args) for n in static if -len(args) <= n < len(args)}
    dynamic = tuple(a for n, a in enumerate(args) if n not in fixed)
    plain = jax.tree.map(lambda leaf: _aval(leaf, "") if is_one_array(leaf) else leaf, dynamic, is_leaf=is_one_array)
    entries = boundary.broadcast(_over_positional(in_shardings, dynamic), plain, "in_shardings")
    entries += [None] * len(jax.tree.leaves(kwargs, is_leaf=is_one_array))
    paths, tree = jax.tree_util.tree_flatten_with_path((dynamic, kwargs), is_leaf=is_one_array)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    avals = [_aval(leaf, name) for (_, leaf), name in zip(paths, names, strict=True)]
    wanted = [
        boundary.resolve(entry, mesh, f"argument {name}") if entry is not None else _own_sharding(leaf)
        for entry, (_, leaf), name in zip(entries, paths, names, strict=True)
    ]
    found = tuple(
        of_numbers(boundary.as_hlo(w, a.shape, f"argument {name}"), a)
        for w, a, name in zip(wanted, avals, names, strict=True)
    )
    handed = [_handed(leaf, aval, w) for (_, leaf), aval, w in zip(paths, avals, wanted, strict=True)]
    new_dynamic, new_kwargs = jax.tree.unflatten(tree, handed)
    remaining = iter(new_dynamic)
    new_args = tuple(a if n in fixed else next(remaining) for n, a in enumerate(args))
    return Arguments(new_args, new_kwargs, tree, tuple(avals), found, mesh or boundary.mesh_of(wanted))


def _over_positional(in_shardings: Any, dynamic: tuple[Any, ...]) -> Any:
    # As jax.jit: a list stands for a tuple, and a single sharding for every argument.
    if isinstance(in_shardings, list):
        return tuple(in_shardings)
    if isinstance(in_shardings, dict) and len(dynamic) == 1:
        return (in_shardings,)
    return in_shardings


def _aval(leaf: Any, name: str) -> Any:
    import jax

    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
    if is_one_array(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    try:
        aval = jax.typeof(leaf)
    except TypeError as error:
        raise TraceError(
            f"argument {name} is {type(leaf).__name__}, neither array nor ShapeDtypeStruct",
            remedy="list its position in static_argnums, or pass jax.ShapeDtypeStruct(shape, dtype)",
        ) from error
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _own_sharding(leaf: Any) -> Any:
    """The NamedSharding that an array or ShapeDtypeStruct brings, if it spans several devices."""
    from jax.sharding import NamedSharding

    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, HloSharding):
        return sharding
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None


def _handed(leaf: Any, aval: Any, wanted: Any) -> Any:
    """What JAX sees: a shape, with the sharding where JAX can say it; Python scalars as they are."""
    import jax

    if wanted is None and isinstance(leaf, (bool, int, float, complex)):
        return leaf
    sharding = wanted if boundary.divides(wanted, aval.shape) else None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)
