"""What a module remembers of the Python function that it was traced from: frontends fill it in, whoever runs it reads.

Floor: ir.  Values, pytrees and avals are the frontend's own; only their number and order mean something here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class FunctionBoundary(Protocol):
    """Arguments and results of a traced function, flat, in the order of its pytrees."""

    @property
    def in_tree(self) -> Any:
        """Tree of `(args, kwargs)`."""
        ...

    @property
    def out_tree(self) -> Any: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Path of each flat argument: `params['w1']`."""
        ...

    @property
    def in_avals(self) -> tuple[Any, ...]:
        """Shape and dtype of each flat argument."""
        ...

    @property
    def out_avals(self) -> tuple[Any, ...]: ...

    @property
    def parameters(self) -> tuple[int | None, ...]:
        """Number of the entry parameter of each flat argument; None for an argument that was dropped."""
        ...

    @property
    def devices(self) -> tuple[Any, ...] | None:
        """Those that the function names, in order of partitions."""
        ...

    @property
    def input_memory(self) -> tuple[str | None, ...]:
        """Per entry parameter the kind of memory it lies in, None for the device's own; () where all do."""
        ...

    @property
    def output_memory(self) -> tuple[str | None, ...]: ...

    @property
    def output_shardings(self) -> tuple[Any, ...]:
        """Per output the sharding by which its maker names it, None for none; () where no output has one."""
        ...

    @property
    def output_names(self) -> Sequence[Any]:
        """Per output who knows its maker's words for a sharding that it may get; () where nobody does."""
        ...

    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Arguments of a call as values per entry parameter.  Raises TypeError where the structure differs."""
        ...

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The function's result from flat outputs."""
        ...
