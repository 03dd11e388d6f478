"""Whose code a source file is: the user's, or that of a library that he does not look at first.

Floor: ir.  The one place that says so, for lines, reports and the names of generated functions.
"""

from __future__ import annotations

import re
from functools import lru_cache

_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\](\w+)")
_STANDARD = re.compile(r".*[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages[/\\])")
_BLOCKS = {
    "jax", "jaxlib", "flax", "haiku", "equinox", "penzai", "optax", "chex", "einops", "jaxtyping", "beartype", "numpy",
    "orbax", "qwix", "numpyro", "blackjax", "distrax", "hlosharding",
}  # fmt: skip
"""Packages of building blocks: who calls them says more.  Others that are installed hold models, as MaxText does."""


def register_library(package: str) -> None:
    """Count an installed package as a library: lines and functions are those of whoever calls it.

    For programs that are traced or loaded from now on.

    >>> is_library_file("/env/lib/python3.12/site-packages/mylab/layers.py")
    False
    >>> register_library("mylab")
    >>> is_library_file("/env/lib/python3.12/site-packages/mylab/layers.py")
    True
    """
    _BLOCKS.add(package)
    is_library_file.cache_clear()


@lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """Is it a file of such a package, or of Python's own?

    >>> is_library_file("/env/lib/python3.12/site-packages/flax/linen/linear.py"), is_library_file("/home/me/train.py")
    (True, False)
    """
    found = _INSTALLED.match(file)
    return found[1] in _BLOCKS if found is not None else _STANDARD.match(file) is not None
