"""Says of a test which of XLA's tests it mirrors, for README.md's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])

MIRRORS: dict[str, str] = {}
"""Our test function -> XLA's test, in the order in which the test modules are read."""


def mirrors(xla_test: str) -> Callable[[Test], Test]:
    """Marks a test function."""

    def mark(test: Test) -> Test:
        MIRRORS[test.__name__] = xla_test
        return test

    return mark
