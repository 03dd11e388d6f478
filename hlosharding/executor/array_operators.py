"""Operators, indexing and methods of a `jax.Array`, for a class that can become one.

Floor: executor.  Results are plain jax arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OPERATORS = (
    *("abs", "neg", "pos", "invert", "round"),
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow"),
    *("and", "or", "xor", "lshift", "rshift", "rand", "ror", "rxor", "rlshift", "rrshift"),
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "iter", "contains"),
    *("bool", "int", "float", "complex", "index"),
)
_METHODS = frozenset(
    """T all any argmax argmin argpartition argsort astype at choose clip compress conj conjugate cumprod cumsum
    diagonal dot flat flatten imag item mT max mean min nonzero prod ptp ravel real repeat reshape round searchsorted
    sort squeeze std sum swapaxes take tolist trace transpose var view""".split()
)


class ArrayOperators:
    """What follows from `as_jax`: `x + 1`, `x[0]`, `x.sum()`, `jnp.sum(x)`."""

    __slots__ = ()

    def as_jax(self) -> Any:
        """The same values as a `jax.Array`."""
        raise NotImplementedError

    def __jax_array__(self) -> Any:
        return self.as_jax()

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS:
            return getattr(self.as_jax(), name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    __hash__ = object.__hash__


def _forwarding(name: str) -> Callable[..., Any]:
    def operator(self: ArrayOperators, *others: Any) -> Any:
        arrays = [o.as_jax() if isinstance(o, ArrayOperators) else o for o in others]
        return getattr(self.as_jax(), name)(*arrays)

    operator.__name__ = operator.__qualname__ = name
    return operator


for _name in _OPERATORS:
    setattr(ArrayOperators, f"__{_name}__", _forwarding(f"__{_name}__"))
