"""README.md: which of our cases mirrors which of XLA's partitioner tests, and how it stands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.xla_mirror.partitioner.cases import FOLDER, Case, all_cases
from tests.xla_mirror.partitioner.standing import recorded

README = FOLDER / "README.md"

_HEAD = """# XLA's partitioner tests and ours

Each row names a test of `xla/service/spmd/spmd_partitioner_test.cc` (openxla/xla, January 2025) and its counterpart:
the same shardings and the same kind of op, with modules, sizes and words of our own, on at most 8 devices.
`test_partitioner.py` partitions each with the shardings as given (objective: bytes), runs it on CPU devices, with
garbage where tiles reach over the edge, holds it against one device's run, and holds the bytes received against live
XLA's *ideal* figure, and the FLOPs against 1.05 times XLA's (`recorded/figures.json`; `python -m
tests.xla_mirror.partitioner.record` writes it and this table).  **Bold**: not as it should be; the test asserts that
too, so that a change either way shows.  FLOPs: arithmetic on numbers, without masks and addresses.  *also as a loop*:
with `overlap="always"` it becomes a loop of permutes (a windowed einsum), as right, with no more bytes.  (Live XLA
makes none on CPU: its threshold is 100,000 MiB.)  *Exempt* from the limit of bytes are cases of which XLA's own program
is wrong: the test runs it.  What nobody implements (our custom calls) is written out for the run (`calls.py`).
"""


def xla_tests() -> list[str]:
    """XLA's tests, in XLA's order."""
    return (FOLDER / "xla_tests.txt").read_text().split()


def not_expressible() -> dict[str, str]:
    """XLA's tests without a counterpart -> why."""
    lines = (FOLDER / "not_expressible.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines if line)


def _standing(case: Case, answers: dict[str, dict[str, Any]]) -> str:
    answer = answers.get(case.name, {})
    if "known" in answer:
        ours = f": {answer['ours']:g}" if "ours" in answer else ""
        xla = f", XLA {answer['flops']:g}" if answer["known"] == "more FLOPs" else ""
        return f"**{answer['known']}{ours}{xla}**"
    if "error" in answer:
        return "refused, as XLA does"
    if case.exempt:
        ours = f", {answer['ours']:g} bytes" if "ours" in answer else ""
        return f"right{ours}; exempt: {case.exempt}"
    return "partitioned, not run" if case.unrun else "right, also as a loop" if answer.get("rings") else "right"


def _rows(cases: dict[str, list[Case]], answers: dict[str, dict[str, Any]]) -> Iterator[str]:
    missing = not_expressible()
    for name in xla_tests():
        if name in missing:
            yield f"| {name} | not expressible: {missing[name]} | | |"
        for case in cases.get(name, []):
            answer = answers.get(case.name, {})
            remark = "; ".join(filter(None, (case.note, case.unrun)))
            where = f"`{case.topic}` {case.name}" + (f" ({remark})" if remark else "")
            yield f"| {name} | {where} | {answer.get('ideal', '')} | {_standing(case, answers)} |"


def table() -> str:
    """The whole text."""
    answers, cases = recorded(), defaultdict[str, list[Case]](list)
    for case in all_cases():
        cases[case.mirrors].append(case)
    counts = Counter(answers.get(c.name, {}).get("known", "as it should be") for found in cases.values() for c in found)
    lines = [_HEAD.rstrip(), ""]
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    lines += [f"{sum(counts.values())} cases for {len(cases)} of {len(xla_tests())} tests: {kinds}.", ""]
    lines += ["| XLA's test | ours | XLA's ideal bytes | ours stands |", "|---|---|---|---|", *_rows(cases, answers)]
    return "\n".join(lines) + "\n"
