"""The quick set: all tests that are cheap, and a tenth of the dear ones, another tenth at each commit.

A function that was never recorded is new, and runs.  Ten commits run everything.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from zlib import crc32

import pytest

from tests.tiers.recorder import Record, function_of, read_record

SHARES = 10
BUDGET = 200.0
"""CPU seconds for the tests that always run, the cheapest first: with linters, types, collection (on each of two cores)
and a tenth of the rest, some 730 seconds, `make test` takes twelve minutes on two cores."""


def chosen_share(said: str | None, root: Path) -> int | None:
    """The share that was said, `none` for none; else that of this commit."""
    if not said:
        return share_of_this_commit(root)
    if said != "none" and said not in map(str, range(SHARES)):
        raise pytest.UsageError(f"--share {said}: say a number from 0 to {SHARES - 1}, or none")
    return None if said == "none" else int(said)


def share_of_this_commit(root: Path) -> int:
    """The number of commits modulo 10; 0 where there is no history."""
    command = ["git", "rev-list", "--count", "HEAD"]
    try:
        told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(told) % SHARES


@dataclass(eq=False)
class QuickSet:
    """The plugin that leaves the others out."""

    path: Path
    share: int | None
    """None: no dear test at all."""

    @cached_property
    def record(self) -> Record:
        """What tests took."""
        return read_record(self.path)

    @cached_property
    def dear(self) -> frozenset[str]:
        """The functions whose tests take turns: those beyond the budget, a test of the cheapest first."""
        functions, spent, dear = self.record.functions, 0.0, list[str]()
        for name in sorted(functions, key=lambda name: (functions[name].mean, name)):
            spent += functions[name].seconds
            if spent > BUDGET:
                dear.append(name)
        return frozenset(dear)

    def has(self, nodeid: str) -> bool:
        """Does this test run now?"""
        return function_of(nodeid) not in self.dear or crc32(nodeid.encode()) % SHARES == self.share

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen, left_out = list[pytest.Item](), list[pytest.Item]()
        for item in items:
            (chosen if self.has(item.nodeid) else left_out).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen

    def pytest_report_header(self) -> str:
        seconds = sum(self.record.functions[name].seconds for name in self.dear)
        turn = "none" if self.share is None else f"share {self.share} of {SHARES}"
        age = (date.today() - self.record.day).days
        return (
            f"quick set: all cheap tests, and of {len(self.dear)} dear functions ({seconds:.0f} CPU seconds) {turn};"
            f" recorded {age} days ago by `make test-all`"
        )
