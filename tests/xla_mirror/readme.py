"""README.md: which of our tests mirrors which of XLA's, written by the recorder.

`xla_tests.txt` lists XLA's tests (file and test name), in XLA's order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.xla_mirror import test_sharding_value, test_utilities
from tests.xla_mirror.cases import FOLDER, all_cases
from tests.xla_mirror.mirroring import MIRRORS
from tests.xla_mirror.utilities import all_questions

PATH = FOLDER / "README.md"

_HEAD = """# XLA's tests and ours

Each row names a test of XLA (openxla/xla, January 2025) and its counterparts here: the same behaviour, with modules,
sizes and words of our own.  Expected answers are live XLA's, recorded by `python -m tests.xla_mirror.record`, which
writes this table too; what live XLA cannot be asked follows from hand reasoning beside the test.

| what | where |
|---|---|
| modules of the propagation tests | `propagation/<topic>.hlo.txt`; `cases.py` says how to read them |
| questions to the sharding utilities, sharding texts | `utilities.py`, `texts.py` |
| live XLA's answers | `recorded/`; each file names jaxlib's version |
| the tests | `test_propagation.py`, `test_utilities.py`, `test_sharding_value.py` |
"""

_READ = (test_sharding_value, test_utilities)
"""Reading these fills MIRRORS."""


def xla_tests() -> dict[str, list[str]]:
    """XLA's file -> its tests."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (FOLDER / "xla_tests.txt").read_text().splitlines():
        file, name = line.split()
        found[file].append(name)
    return found


def mirrored() -> dict[str, list[str]]:
    """XLA's test -> ours, as the table says it."""
    found: dict[str, list[str]] = defaultdict(list)
    for case in all_cases():
        note = f" ({case.note})" if case.note else ""
        found[case.mirrors].append(f"`{case.topic}` {case.name}{note}")
    for questions in all_questions():
        found[questions.mirrors].append(f"`utilities` {questions.name}")
    for xla_test, module, name in MIRRORS:
        found[xla_test].append(f"`{module}` {name}")
    return found


def _table(file: str, names: list[str], ours: dict[str, list[str]]) -> Iterator[str]:
    yield f"\n## {file}: {sum(name in ours for name in names)} of {len(names)}\n"
    yield "| XLA's test | ours |"
    yield "|---|---|"
    for name in names:
        yield f"| {name} | {'; '.join(ours[name]) if name in ours else 'none'} |"


def readme() -> str:
    """The whole text."""
    ours = mirrored()
    lines = [_HEAD.rstrip()]
    for file, names in xla_tests().items():
        lines += _table(file, names, ours)
    return "\n".join(lines) + "\n"
