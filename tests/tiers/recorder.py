"""What each test function costs, in CPU seconds: measured while all tests run, kept in `cpu_seconds.json`.

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
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

RECORD = Path(__file__).with_name("cpu_seconds.json")
PROPERTY = "cpu_seconds"
"""Under this name a report takes the figure from a worker process to the one that writes the file."""
STARTED = pytest.StashKey[float]()


class Cost(NamedTuple):
    """What all tests of one function took, and how many they are."""

    seconds: float
    tests: int

    @property
    def mean(self) -> float:
        """Seconds of one test."""
        return self.seconds / self.tests


class Record(NamedTuple):
    """What test functions took when they were last recorded."""

    day: date
    functions: dict[str, Cost]


def function_of(nodeid: str) -> str:
    """A test's function: its id without the parameters."""
    return nodeid.partition("[")[0]


def cpu_seconds() -> float:
    """Of this process, and of its children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


@dataclass(eq=False)
class Recorder:
    """The plugin that measures; every process measures, and the one that has no controller writes."""

    path: Path
    is_whole: bool
    """Do all tests run?  What else is recorded is gone then; else it stays."""
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
            self.seconds[function] += sum(float(str(value)) for key, value in report.user_properties if key == PROPERTY)
            self.tests[function] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        has_ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if has_ended and not hasattr(session.config, "workerinput"):
            costs = {name: Cost(self.seconds[name], self.tests[name]) for name in self.tests}
            write_record(self.path, costs if self.is_whole else renewed(read_record(self.path).functions, costs))


def renewed(recorded: dict[str, Cost], measured: dict[str, Cost]) -> dict[str, Cost]:
    """What was recorded, with what was measured in its place: of a function perhaps by a few of its tests."""
    many = {name: max(cost.tests, recorded.get(name, cost).tests) for name, cost in measured.items()}
    return recorded | {name: Cost(cost.mean * many[name], many[name]) for name, cost in measured.items()}


def write_record(path: Path, functions: dict[str, Cost]) -> None:
    """One function a line, so that a diff shows which became dear."""
    rows = [f"{json.dumps(name)}: [{cost.seconds:.2f}, {cost.tests}]" for name, cost in sorted(functions.items())]
    path.write_text(f'{{"recorded": "{date.today()}", "functions": {{\n' + ",\n".join(rows) + "\n}}\n")


def read_record(path: Path) -> Record:
    """What `write_record` wrote."""
    told = json.loads(path.read_text())
    functions = {name: Cost(*row) for name, row in told["functions"].items()}
    return Record(date.fromisoformat(told["recorded"]), functions)
