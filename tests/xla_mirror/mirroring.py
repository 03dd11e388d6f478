"""Says of a test which of XLA's tests it mirrors, for README.md's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])

MIRRORS: list[tuple[str, str, str]] = []
"""XLA's test, our module and our test function, in the order in which the test modules are read."""


def mirrors(xla_test: str) -> Callable[[Test], Test]:
    """Marks a test function."""

    def mark(test: Test) -> Test:
        MIRRORS.append((xla_test, test.__module__.rpartition(".")[2], test.__name__))
        return test

    return mark
