"""How far long work is: a bar on standard error where a person watches, in a notebook below its cell.

Ground.  Knows nothing of the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from hlosharding.notebook import is_notebook

Progress = Callable[[int, int], None]
"""Is told (done, at most)."""


@contextmanager
def counting(what: str, progress: Progress | bool = True) -> Iterator[Progress]:
    """The function that moves a bar; at the end of the work all is done.

    `progress`: False shows nothing; a function is told in the bar's place.

    >>> told = []
    >>> with counting("pricing plans", lambda done, most: told.append((done, most))) as progress:
    ...     progress(1, 3)
    >>> told
    [(1, 3), (3, 3)]
    """
    last = 0
    with nullcontext(progress) if callable(progress) else _bar(what, is_shown=progress) as shown:

        def tell(done: int, most: int) -> None:
            nonlocal last
            last = most
            shown(done, most)

        yield tell
        shown(last, last)


def _bar(what: str, *, is_shown: bool) -> AbstractContextManager[Progress]:
    if is_shown and is_notebook():
        return _below_the_cell(what)
    if is_shown and sys.stderr is not None and sys.stderr.isatty():
        return _on_the_terminal(what)
    return nullcontext(lambda done, most: None)


@contextmanager
def _on_the_terminal(what: str) -> Iterator[Progress]:
    """Gone when the work is done."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what)
        yield lambda done, most: bars.update(task, completed=done, total=most)


@contextmanager
def _below_the_cell(what: str) -> Iterator[Progress]:
    """What all notebooks can show: rich would need widgets."""
    from IPython.display import HTML, DisplayHandle

    bar = DisplayHandle()
    bar.display(HTML(what))
    yield lambda done, most: bar.update(
        HTML(f'{what} <progress value="{done}" max="{most}"></progress> {done} of {most}')
    )
