"""How many of JAX's own tests pass with `hs.jit` in the place of `jax.jit`?

`python -m benchmarks.jax_own_tests FOLDER [FILE ...] [--sample N]`: FOLDER holds `tests/` of jax-ml/jax at the tag of
the installed version; they are read from there, not copied.  N: of how many tests of a file one runs.  A test counts
if it calls `jit` and passes with `jax.jit`; what then fails with `hs.jit` stands in `jax_own_tests.txt` with the
reason, or is a fault.  Needs the extra `jax-tests`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.table import Table

from benchmarks.jax_test_plugin import MESH, PLAIN, SAMPLE
from benchmarks.verdict import finish, judged

REASONS = Path(__file__).with_suffix(".txt")
LIMIT = 0.05
"""Of tests that count, those that fail without a reason that stands in the table."""
SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Suite:
    """A file of JAX's tests."""

    mesh: str
    """Given to every hs.jit: for files whose tests are of values, which name no mesh."""
    sample: int
    """Of how many tests one runs by default."""


SUITES = {
    "pjit_test": Suite("", 1),
    "array_test": Suite("", 1),
    "shard_map_test": Suite("", 1),
    "custom_partitioning_test": Suite("", 1),
    "memories_test": Suite("", 1),
    "api_test": Suite("x=2,y=4", 2),
    "lax_control_flow_test": Suite("x=2,y=4", 2),
    "random_test": Suite("x=2,y=4", 4),
    "lax_test": Suite("x=2,y=4", 40),
    "lax_numpy_test": Suite("x=2,y=4", 40),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one test."""

    passed: bool
    jits: int
    message: str


def outcomes(folder: Path, name: str, sample: int, *, plain: bool) -> dict[str, Outcome]:
    """By the test's name, what came of it."""
    suite = SUITES[name]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        SAMPLE: str(sample),
        MESH: suite.mesh,
        PLAIN: "1" if plain else "",
    }
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "benchmarks.jax_test_plugin"),
            *("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "--junit-xml", str(report)),
            str(folder / "tests" / f"{name}.py"),
        ]
        subprocess.run(command, env=environment, timeout=SECONDS, check=False, stdout=subprocess.DEVNULL)
        return _read(report)


def _read(report: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        jits = sum(int(p.get("value", "0")) for p in case.iter("property") if p.get("name") == "jits")
        text = " ".join((bad[0].get("message") or "").split())[:300] if bad else ""
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        found[name] = Outcome(not bad, jits, text)
    return found


def reasons() -> list[tuple[re.Pattern[str], str]]:
    """Tests that may fail, as patterns of `FILE::CLASS.TEST`, each with its reason."""
    lines = [line.split("  ", 1) for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    return [(re.compile(pattern), reason.strip()) for pattern, reason in lines]


def main(folder: Path, names: list[str], sample: int | None) -> None:
    """Print the table and every fault; fail where more than one in twenty has no reason."""
    table = Table("file", "tests", "pass", "with a reason", "faults", "share", title="JAX's own tests with hs.jit")
    known = reasons()
    kept: list[bool] = []
    for name in names or list(SUITES):
        every = sample or SUITES[name].sample
        usual = {n: o for n, o in outcomes(folder, name, every, plain=True).items() if o.passed and o.jits}
        ours = outcomes(folder, name, every, plain=False)
        failed = {n: ours[n].message if n in ours else "not run" for n in usual if n not in ours or not ours[n].passed}
        excused = Counter[str]()
        for test, message in sorted(failed.items()):
            reason = next((r for pattern, r in known if pattern.search(f"{name}::{test}")), None)
            if reason is None:
                print(f"{name}::{test}\n    {message}", flush=True)
            else:
                excused[reason] += 1
        faults = len(failed) - excused.total()
        share, is_kept = judged(faults / max(1, len(usual)), LIMIT)
        kept.append(is_kept)
        counted = (len(usual), len(usual) - len(failed), excused.total(), faults)
        table.add_row(name, *map(str, counted), share)
    finish(table, kept)


if __name__ == "__main__":
    parser = ArgumentParser(description="JAX's own tests with hs.jit in the place of jax.jit.")
    parser.add_argument("folder", type=Path, help="holds tests/ of jax-ml/jax")
    parser.add_argument("names", nargs="*", help="files, without .py")
    parser.add_argument("--sample", type=int, help="of how many tests one runs")
    given = parser.parse_args()
    main(given.folder, given.names, given.sample)
