"""README.md: which of our tests mirrors which of XLA's, written by the recorder.

`xla_tests.txt` lists XLA's tests (file and test name), in XLA's order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.xla_mirror.cases import FOLDER, Case

_HEAD = """# XLA's tests and ours

Each row names a test of XLA (openxla/xla, January 2025) and its counterpart here: the same behaviour, with a module,
sizes and words of our own.  The expected answers are live XLA's, recorded by `python -m tests.xla_mirror.record`, which
writes this table too.

| what | where |
|---|---|
| modules of the propagation tests | `propagation/<topic>.hlo.txt`, format in `cases.py` |
| live XLA's answers | `recorded/` (each file names jaxlib's version) |
| the tests | `test_propagation.py`, `sharding/test_*.py` |
"""


def _xla_tests() -> dict[str, list[str]]:
    """XLA's file -> its tests."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (FOLDER / "xla_tests.txt").read_text().splitlines():
        file, name = line.split()
        found[file].append(name)
    return found


def _mirrors(cases: Iterable[Case]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        note = f" ({case.note})" if case.note else ""
        found[case.mirrors].append(f"`{case.topic}`: {case.name}{note}")
    return found


def _table(file: str, names: list[str], ours: dict[str, list[str]]) -> Iterator[str]:
    have = sum(name in ours for name in names)
    yield f"\n## {file}: {have} of {len(names)}\n"
    yield "| XLA's test | ours |"
    yield "|---|---|"
    for name in names:
        yield f"| {name} | {'; '.join(ours.get(name, ['none yet']))} |"


def write_readme(cases: Iterable[Case]) -> None:
    """Write the table anew."""
    ours = _mirrors(cases)
    lines = [_HEAD.rstrip()]
    for file, names in _xla_tests().items():
        lines += _table(file, names, ours)
    (FOLDER / "README.md").write_text("\n".join(lines) + "\n")
