"""What counts as one array of a function's arguments, and PRNG keys as the numbers they are.

Floor: frontends.  Knows pytrees and JAX's dtypes, nothing of HLO.
"""

from __future__ import annotations

from typing import Any

# JAX's name of a key's dtype -> the generator that `jax.random.wrap_key_data` is told.
_GENERATORS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def is_one_array(node: Any) -> bool:
    """Pytree nodes that stand for a single global array (an `hs.ShardedArray`) are leaves to us."""
    return getattr(type(node), "is_one_array", False)


def is_key(array: Any) -> bool:
    """Is it an array of PRNG keys, or a description of one?"""
    import jax.numpy as jnp
    from jax.dtypes import prng_key

    return hasattr(array, "dtype") and jnp.issubdtype(array.dtype, prng_key)


def as_numbers(leaf: Any) -> Any:
    """An argument as the program takes it: keys as their u32 data."""
    import jax

    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def as_described(output: Any, aval: Any) -> Any:
    """An output of the program as the function gave it: u32 data as keys where the function returns keys."""
    import jax

    if not is_key(aval):
        return output
    return jax.random.wrap_key_data(output, impl=_GENERATORS.get(str(aval.dtype)))
