"""What an example does now, and for how long: shown on standard error, each second where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def doing(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """While the work is done; of what has steps the value is to be called at each."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = (BarColumn(), MofNCompleteColumn()) if total else ()
    with Progress(*columns, *bar, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
