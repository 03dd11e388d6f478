"""The arguments of a function to trace: what JAX is handed, and each one's shape and sharding.

Floor: frontends.  Knows pytrees and the ways users spell a sharding; nothing of HLO modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import TraceError
from hlosharding.frontends.jax import boundary
from hlosharding.frontends.jax.signature import is_one_array, of_numbers
from hlosharding.sharding import HloSharding
from hlosharding.xla_bridge import StaticArguments


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call's arguments: those handed to JAX, and what each flat dynamic one is."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tree: Any
    avals: tuple[Any, ...]
    shardings: tuple[HloSharding | None, ...]
    spelled: tuple[Any, ...]
    """The same in the user's words: a NamedSharding, say; also those of which only JAX knows."""
    memory: tuple[str | None, ...]
    """The kinds of memory that they lie in, as far as they say."""
    mesh: Any
    names: tuple[str, ...]
    """What the function calls each flat one: `params['w']`."""

    @property
    def known_to_jax(self) -> tuple[Any, ...]:
        """How arguments lie of which only JAX knows it."""
        pairs = zip(self.spelled, self.shardings, strict=True)
        return tuple(said if sharding is None else None for said, sharding in pairs)


def arguments_of(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], static: StaticArguments, in_shardings: Any, mesh: Any
) -> Arguments:
    """The arguments of a call to trace: `in_shardings` go before those that arrays bring.  Raises TraceError."""
    import jax

    paths, tree = jax.tree_util.tree_flatten_with_path(static.left_out(args, kwargs))
    positions = sorted({*range(len(args))} - static.among(args))
    parameters = _positional_parameters(fn)
    names = [_path_in_words(parameters, positions, path) for path, _ in paths]
    leaves = tuple(leaf for _, leaf in paths)
    avals = [_aval(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    dynamic = jax.tree.unflatten(tree, avals)[0]
    entries = boundary.broadcast(_over_positional(in_shardings, dynamic), dynamic, "in_shardings")
    entries += [None] * (len(leaves) - len(entries))
    wanted = [
        boundary.resolve(entry, mesh, f"argument {name}") if entry is not None else _own_sharding(leaf)
        for entry, leaf, name in zip(entries, leaves, names, strict=True)
    ]
    for wish, entry, leaf, name in zip(wanted, entries, leaves, names, strict=True):
        if entry is not None:
            _check_place(leaf, wish, name)
    found = tuple(
        of_numbers(boundary.as_hlo(w, getattr(a, "shape", ()), f"argument {name}"), a)
        for w, a, name in zip(wanted, avals, names, strict=True)
    )
    spelled = tuple(_placed(leaf) if w is None else w for w, leaf in zip(wanted, leaves, strict=True))
    memory = tuple(getattr(w, "memory_kind", None) for w in wanted)
    handed = [_handed(leaf, aval, w) for leaf, aval, w in zip(leaves, avals, wanted, strict=True)]
    new_args, new_kwargs = jax.tree.unflatten(tree, handed)
    at_places = dict(zip(positions, new_args, strict=True))
    all_args = tuple(at_places.get(n, arg) for n, arg in enumerate(args))
    place = mesh or boundary.mesh_of(wanted)
    return Arguments(
        all_args, kwargs | new_kwargs, tree, tuple(avals), found, spelled, memory, place, tuple(names)
    )  # fmt: skip


def _positional_parameters(fn: Any) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _path_in_words(parameters: Sequence[str], positions: Sequence[int], path: Sequence[Any]) -> str:
    """Where a leaf stands among a call's arguments, by the function's own names: `params['w']`."""
    import jax

    group, first, *rest = path
    if group.idx == 1:
        return str(first.key) + jax.tree_util.keystr(tuple(rest))
    number = positions[first.idx]
    name = parameters[number] if number < len(parameters) else f"args[{number}]"
    return f"{name}{jax.tree_util.keystr(tuple(rest))}"


def _over_positional(in_shardings: Any, dynamic: tuple[Any, ...]) -> Any:
    # As jax.jit: a list stands for a tuple, and a single sharding for every argument.
    if isinstance(in_shardings, list):
        return tuple(in_shardings)
    if isinstance(in_shardings, dict) and len(dynamic) == 1:
        return (in_shardings,)
    return in_shardings


def _aval(leaf: Any, name: str) -> Any:
    import jax
    from jax.core import ShapedArray

    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
    if is_one_array(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    if isinstance(leaf, ShapedArray):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
    try:
        aval = jax.typeof(leaf)
    except TypeError as error:
        raise TraceError(
            f"Error interpreting argument to the function as an abstract array. The problematic value is of type"
            f" {type(leaf)} and was passed to the function at path {name}",
            remedy="list its position in static_argnums, or pass jax.ShapeDtypeStruct(shape, dtype)",
        ) from error
    if not isinstance(aval, ShapedArray):
        return aval  # a token or a reference
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _own_sharding(leaf: Any) -> Any:
    """The NamedSharding that an array or ShapeDtypeStruct brings, if it spans several devices."""
    from jax.sharding import NamedSharding

    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, HloSharding):
        return sharding
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None


def _placed(leaf: Any) -> Any:
    """The sharding of an array that is committed to its devices."""
    return leaf.sharding if getattr(leaf, "committed", False) else None


def _check_place(leaf: Any, entry: Any, name: str) -> None:
    """TraceError where `in_shardings` say otherwise, in JAX's words, than an array that is committed to its devices."""
    import jax

    if not (isinstance(leaf, jax.Array) and leaf.committed and boundary.divides(entry, leaf.shape)):
        return
    if not leaf.sharding.is_equivalent_to(entry, leaf.ndim):
        raise TraceError(
            f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: {entry}, "
            f"arg sharding: {leaf.sharding} for arg {name} of shape {list(leaf.shape)}",
            remedy="lay it out so with jax.device_put, or leave its entry of in_shardings open (None)",
        )


def _handed(leaf: Any, aval: Any, wanted: Any) -> Any:
    """What JAX sees: a shape, with the sharding where JAX can say it; Python scalars as they are."""
    import jax

    if not isinstance(aval, jax.ShapeDtypeStruct):
        return leaf
    if wanted is None and isinstance(leaf, (bool, int, float, complex)):
        return leaf
    sharding = wanted if boundary.divides(wanted, aval.shape) else None
    if wanted is None:
        sharding = _placed(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)
