"""What each test function costs, in CPU seconds: measured while tests run, kept in a file beside this one.

Seconds are those of the test's own process with all its threads, where XLA compiles, and of the children it waited for.
They depend on the machine: what counts is which tests are dear beside others.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).with_suffix(".json")
PROPERTY = "cpu_seconds"
"""Under this name a report takes the figure from a worker process to the one that writes the file."""


def function_of(nodeid: str) -> str:
    """A test's function: its id without the parameters."""
    return nodeid.partition("[")[0]


def cpu_seconds() -> float:
    """Of this process, and of its children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


@dataclass(eq=False)
class Recorder:
    """The plugin that measures."""

    path: Path
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tests: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[STARTED] = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.when == "teardown":
            item.user_properties.append((PROPERTY, cpu_seconds() - item.stash[STARTED]))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            function = function_of(report.nodeid)
            self.seconds[function] += dict(report.user_properties)[PROPERTY]
            self.tests[function] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            write(self.path, self.seconds, self.tests)


STARTED = pytest.StashKey[float]()


def write(path: Path, seconds: dict[str, float], tests: dict[str, int]) -> None:
    functions: dict[str, Any] = {name: [round(seconds[name], 2), tests[name]] for name in sorted(seconds)}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in functions.items())
    path.write_text(f'{{"recorded": "{time.strftime("%Y-%m-%d")}", "functions": {{\n{rows}\n}}}}\n')
