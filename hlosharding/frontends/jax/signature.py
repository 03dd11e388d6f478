"""What the function behind a traced module takes and gives: pytrees, shapes and names.

Floor: frontends.  A record; whoever runs the module (compiler) reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlosharding.errors import HloShardingError
from hlosharding.ir import FunctionBoundary
from hlosharding.sharding import HloSharding, add_shape_dims
from hlosharding.xla_bridge import NO_STATIC_ARGUMENTS, StaticArguments

# ---- what counts as one array of a function's arguments, and PRNG keys as the numbers they are
#
# Knows pytrees and JAX's dtypes, nothing of HLO.


# JAX's name of a key's dtype -> the generator that `jax.random.wrap_key_data` is told.
_GENERATORS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def is_one_array(node: Any) -> bool:
    """What stands for a global array without being JAX's: an `hs.ShardedArray`."""
    return getattr(type(node), "is_one_array", False)


def is_key(array: Any) -> bool:
    """Is it an array of PRNG keys, or a description of one?"""
    # Asked of every leaf in every call: numpy's own types are no keys, without JAX's tables.
    dtype = getattr(array, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype):
        return False
    import jax.numpy as jnp
    from jax.dtypes import prng_key

    return jnp.issubdtype(dtype, prng_key)


def first_tracer(tree: Any) -> Any:
    """The first leaf that is a value that JAX is tracing, if there is one."""
    import jax
    from jax.core import Tracer

    return next((leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tracer)), None)


def are_on_several_devices(tree: Any) -> bool:
    """Does a leaf lie on several devices, or say that it shall?  Uncommitted arrays on several JAX refuses."""
    import jax

    leaves = (leaf for leaf in jax.tree.leaves(tree) if getattr(leaf, "committed", True))
    shardings = (getattr(leaf, "sharding", None) for leaf in leaves)
    # None: an HloSharding that names no number of devices, as a replicated one, is of all.
    return any((getattr(sharding, "num_devices", 1) or 2) > 1 for sharding in shardings if sharding is not None)


def refuse_references(outputs: Sequence[bool], results: int, kind: type[HloShardingError]) -> None:
    """Raises an error of that kind where JAX's program has outputs beyond the function's: mutable arrays of others."""
    if len(outputs) > results:
        raise kind(
            "the function reads or writes a mutable array (jax.new_ref) of its caller's",
            remedy="take its value as an argument and return what it becomes, or leave the function to jax.jit",
        )


def as_numbers(leaf: Any) -> Any:
    """An argument, or its description, as the program takes it: keys as their u32 data."""
    import jax

    if getattr(leaf, "dtype", None) == jax.dtypes.float0:
        return np.zeros(np.shape(leaf), bool)
    if not is_key(leaf):
        return leaf
    is_described = isinstance(leaf, jax.ShapeDtypeStruct)
    return jax.eval_shape(jax.random.key_data, leaf) if is_described else jax.random.key_data(leaf)


def of_numbers(sharding: HloSharding | None, leaf: Any) -> HloSharding | None:
    """The sharding of a leaf as that of what the program takes or gives: the numbers of one key stay together.

    >>> import jax
    >>> keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 8))
    >>> str(of_numbers(HloSharding.parse("{devices=[4]<=[4]}"), keys))
    '{devices=[4,1]<=[4]}'
    """
    return sharding if sharding is None or not is_key(leaf) else add_shape_dims(sharding, len(leaf.shape), 1)


def as_described(output: Any, aval: Any) -> Any:
    """An output of the program as the function gave it: u32 data as keys where the function returns keys.

    Keys are always jax arrays: those of pieces that JAX cannot lay out are put together.
    """
    import jax

    if aval.dtype == jax.dtypes.float0:
        return np.zeros(aval.shape, aval.dtype)
    if not is_key(aval):
        return output
    if is_one_array(output):
        output = np.asarray(output)
    return jax.random.wrap_key_data(output, impl=_GENERATORS.get(str(aval.dtype)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSignature(FunctionBoundary):
    """As JAX has it: avals are `jax.ShapeDtypeStruct`s of global shapes, names of shardings are `OutputNames`."""

    static: StaticArguments = NO_STATIC_ARGUMENTS

    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Arguments of a call, static ones among them or not, as values per entry parameter.

        Raises TypeError where the pytree differs.
        """
        import jax

        leaves, tree = jax.tree.flatten((tuple(args), kwargs))
        if tree != self.in_tree:
            leaves, tree = jax.tree.flatten(self.static.left_out(tuple(args), kwargs))
        if tree != self.in_tree:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called with: "
                f"the arguments have the structure {tree}, the function was traced with {self.in_tree}"
            )
        numbered = zip(self.parameters, leaves, strict=True)
        placed = {number: as_numbers(leaf) for number, leaf in numbered if number is not None}
        return [placed[number] for number in sorted(placed)]

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The function's result from flat outputs."""
        import jax

        described = [as_described(o, aval) for o, aval in zip(outputs, self.out_avals, strict=True)]
        return jax.tree.unflatten(self.out_tree, described)
