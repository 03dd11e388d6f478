"""Does a refactoring leave every program as it was?  `python -m benchmarks.fingerprint [FAMILY ...] --against REF`

REF is a file that `--to FILE` wrote, or a git revision: its own recorder runs in a work tree of its own.  A fingerprint
says of one program under one setting (an objective, or overlap) what came out: local HLO without names and metadata,
the table of collectives without its wording, predicted cost and time, propagated shardings, generated Python without
comments, overrides, warnings, and what `explain` says of some values and collectives.  Families: `mirror`, `zoo`,
`examples`, `deep` (24 layers), `random`, `reshards`; the first hundred of one: `random:100`.  Each chunk of programs
has a process of its own, so that an abort inside XLA costs one chunk, by name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.workers import JOBS, told

HERE = Path(__file__).parents[1]
KEPT = HERE / "out" / "fingerprints"
"""Fingerprints of git revisions, by their hash: a revision does not change."""
CHUNK = 8
SECONDS_A_CHUNK = 1800
Prints = dict[str, dict[str, str]]
"""Program and setting -> aspect -> digest."""


def main() -> None:
    """Record; compare with REF where one is given.  Status 1 where something differs."""
    parser = argparse.ArgumentParser(description="Does a refactoring leave every program as it was?")
    parser.add_argument("families", nargs="*", help="all without any")
    parser.add_argument("--against", metavar="REF", help="a file of fingerprints, or a git revision")
    parser.add_argument("--to", metavar="FILE", type=Path, help="write the fingerprints there")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        from benchmarks.fingerprinting import record

        record(options.worker, [int(number) for number in options.families])
        return
    found = recorded(options.families, options.jobs)
    if options.to:
        _write(options.to, found)
    if options.against:
        sys.exit(compare(reference(options), found))
    print(f"{len(found)} fingerprints")


def recorded(families: Sequence[str], jobs: int) -> Prints:
    """Fingerprints of every program of the families (all: none named), by worker processes."""
    from benchmarks.fingerprinting import sizes

    chunks = [
        [family, *map(str, range(at, min(at + CHUNK, size)))]
        for family, size in sizes(families).items()
        for at in range(0, size, CHUNK)
    ]
    chunks.sort(key=lambda chunk: chunk[0] not in ("zoo", "examples", "deep"))  # the longest first
    found: Prints = {}
    with ThreadPoolExecutor(jobs) as pool:
        answers = pool.map(_ask, chunks)
        for prints in track(answers, total=len(chunks), console=Console(stderr=True)):
            found |= prints
    return dict(sorted(found.items()))


def _ask(chunk: list[str]) -> Prints:
    family, *numbers = chunk
    rows, errors = told("fingerprint", [*numbers, "--worker", family], SECONDS_A_CHUNK)
    found = {row["program"]: row["prints"] for row in rows}
    if errors:
        found[f"{family} {numbers[0]} to {numbers[-1]}"] = {"errors": errors[-500:]}
    return found


def reference(options: argparse.Namespace) -> Prints:
    """What to compare with."""
    if Path(options.against).is_file():
        return json.loads(Path(options.against).read_text())
    commit = _git("rev-parse", "--verify", f"{options.against}^{{commit}}")
    kept = KEPT / f"{commit}-{'-'.join(options.families) or 'all'}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            _git("worktree", "add", "--detach", folder, commit)
            try:
                _run_there(Path(folder), options, kept)
            finally:
                _git("worktree", "remove", "--force", folder)
    return json.loads(kept.read_text())


def _run_there(folder: Path, options: argparse.Namespace, kept: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.fingerprint", *options.families]
    command += ["--to", str(kept), "--jobs", str(options.jobs)]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, check=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()


def _write(path: Path, prints: Prints) -> None:
    """The file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".tmp")
    made.write_text(json.dumps(prints, indent=1))
    made.replace(path)


def compare(old: Prints, new: Prints) -> int:
    """Print what differs; 1 where something does."""
    both = old.keys() & new.keys()
    changed = {name: _differing(old[name], new[name]) for name in sorted(both) if old[name] != new[name]}
    table = Table("family", "programs", "equal", "differ", "only before", "only now", title="Fingerprints")
    families = Counter[tuple[str, str]]()
    for name in old.keys() | new.keys():
        what = "differ" if name in changed else "equal" if name in both else "gone" if name in old else "new"
        families[name.split()[0], what] += 1
    for family in sorted({family for family, _ in families}):
        counts = [families[family, what] for what in ("equal", "differ", "gone", "new")]
        table.add_row(family, *map(str, (sum(counts), *counts)))
    console = Console(width=max(120, Console().width))
    console.print(table)
    for name, aspects in changed.items():
        console.print(f"{name}: {', '.join(aspects)}", markup=False, highlight=False)
    return int(bool(changed) or len(both) < len(old))


def _differing(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [aspect for aspect in sorted(old.keys() | new.keys()) if old.get(aspect) != new.get(aspect)]


if __name__ == "__main__":
    main()
