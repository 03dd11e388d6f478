"""What a module remembers of the Python function that it was traced from: frontends fill it in, whoever runs it reads.

Floor: ir.  Values, pytrees and avals are the frontend's own; only their number and order mean something here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionBoundary(ABC):
    """Arguments and results of a traced function, flat, in the order of its pytrees."""

    in_tree: Any
    """Tree of `(args, kwargs)`, static arguments left out."""
    out_tree: Any
    in_avals: tuple[Any, ...]
    """Shape and dtype of each flat argument."""
    out_avals: tuple[Any, ...]
    names: tuple[str, ...]
    """Path of each flat argument as JAX prints it: `params['w1']`."""
    parameters: tuple[int | None, ...]
    """Number of the entry parameter of each flat argument; None for an argument that was dropped."""
    devices: tuple[Any, ...] | None = None
    """Those that the function names: partition i runs on the i-th."""
    input_memory: tuple[str | None, ...] = ()
    """Per entry parameter the kind of memory it lies in, None for the device's own; () where all do."""
    output_memory: tuple[str | None, ...] = ()
    output_shardings: tuple[Any, ...] = ()
    """Per output the sharding by which its maker names it, None for none; () where no output has one."""
    output_names: tuple[Any, ...] = ()
    """Per output who knows its maker's words for a sharding that it may get; () where nobody does."""

    @abstractmethod
    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Arguments of a call as values per entry parameter.  Raises TypeError where the structure differs."""

    @abstractmethod
    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The function's result from flat outputs."""
