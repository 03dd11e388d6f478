"""A tensor while a model is traced: what JAX traces of it, and what is known of it before anything runs.

Floor: onnx.  Shapes, axes and the like must be known; they come from constants, from shapes of other tensors, or
from inputs that the user gave by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlosharding.errors import LoadError


class NeedsInput(LoadError):
    """A value that must be known depends on a graph input that was given by shape only."""

    def __init__(self, name: str, where: str | None = None) -> None:
        remedy = f"give its value: inputs={{{name!r}: array}} (--input {name}=...)"
        super().__init__(f"a shape depends on the value of input {name!r}", where=where, remedy=remedy)
        self.name = name


class OnnxValue:
    """A tensor: `array` is what an operator gets, `static()` what it gets where the value must be known.

    >>> OnnxValue(known=np.array([2, 3])).static().tolist()
    [2, 3]
    """

    __slots__ = ("_array", "_known", "evaluate")

    def __init__(
        self,
        array: Any = None,
        *,
        known: np.ndarray | None = None,
        evaluate: Callable[[], np.ndarray] | None = None,
    ) -> None:
        self._array, self._known = array, known
        self.evaluate = evaluate
        """Computes the value without running the program, where that can be."""

    @property
    def is_constant(self) -> bool:
        """Is it known, and no weight?  Then what is computed from it is known, too."""
        return self._array is None

    @property
    def array(self) -> Any:
        """What JAX traces; a numpy array of a small constant."""
        return self._known if self._array is None else self._array

    def static(self) -> np.ndarray:
        """The value itself.  Raises NeedsInput, or LoadError where it is only known when the program runs."""
        if self._known is None:
            if self.evaluate is None:
                raise LoadError(
                    "a shape depends on a value that is computed when the program runs",
                    remedy="HLO needs every shape beforehand",
                )
            self._known = np.asarray(self.evaluate())
        return self._known


Entry = OnnxValue | list[Any] | None
"""Of a name: a tensor, a sequence (of entries), or an optional that holds nothing."""


def wrap_result(found: Any) -> Entry:
    """What an operator gave, as an entry: arrays become tensors, lists sequences."""
    if found is None or isinstance(found, OnnxValue):
        return found
    if isinstance(found, list):
        return [wrap_result(each) for each in found]
    return OnnxValue(known=np.asarray(found)) if isinstance(found, np.ndarray | np.generic) else OnnxValue(found)


def unwrap_entry(entry: Entry) -> Any:
    """What an operator gets of an entry: numpy arrays of small constants, else traced arrays; lists of sequences."""
    if isinstance(entry, list):
        return [unwrap_entry(each) for each in entry]
    return entry.array if entry is not None else None


def trace_entry(entry: Entry) -> Any:
    """The same without what is known: JAX's arrays in any case."""
    import jax

    return jax.tree.map(jax.numpy.asarray, unwrap_entry(entry))
