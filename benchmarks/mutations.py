"""Does the quick set of tests notice what the whole one notices?  `python -m benchmarks.mutations 50 --seed 1`

Each mutant (`mutants.py`) is put into a work tree of this commit and meets the quick set without its rotating part, its
own room's tests first, until one fails.  What the quick set misses meets *all* tests of the rooms that import the
mutated file's names.  Status 1 where those catch what the quick set missed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from queue import Queue

from rich.console import Console
from rich.progress import track

from benchmarks.mutants import Mutant, drawn
from benchmarks.workers import JOBS

HERE = Path(__file__).parents[1]
QUICK = ["--quick", "--share", "none"]
SECONDS = 3600
"""A run of tests that takes longer hangs: caught."""


def main() -> None:
    """Print a line a mutant, as a table of Markdown."""
    parser = argparse.ArgumentParser(description="Does the quick set of tests notice what the whole one notices?")
    parser.add_argument("count", nargs="?", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS, help="work trees at a time")
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of mutants to look at")
    options = parser.parse_args()
    mutants = list(enumerate(drawn(HERE, options.count, options.seed)))
    chosen = [pair for pair in mutants if options.only is None or pair[0] in options.only]
    print("| | where | change | quick set | all tests of the rooms |\n|---|---|---|---|---|")
    with _worktrees(options.jobs) as free, ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(_judged, *zip(*chosen, strict=True), repeat(free))
        missed = [verdict for verdict in track(verdicts, total=len(chosen), console=Console(stderr=True)) if verdict]
    sys.exit(bool(missed))


@contextmanager
def _worktrees(count: int) -> Iterator[Queue[Path]]:
    free = Queue[Path]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            tree = Path(folder, str(number))
            subprocess.run(["git", "worktree", "add", "--detach", "-q", tree], cwd=HERE, check=True)
            free.put(tree)
        try:
            yield free
        finally:
            while not free.empty():
                subprocess.run(["git", "worktree", "remove", "--force", free.get()], cwd=HERE, check=True)


def _judged(number: int, mutant: Mutant, free: Queue[Path]) -> bool:
    """Print its line; is it one that the quick set misses and its rooms' tests catch?"""
    tree = free.get()
    path = tree / mutant.file
    before = path.read_text()
    try:
        path.write_text(mutant.source)
        quick = _caught_by_quick_set(tree, mutant.file)
        rooms = "" if quick else _failing(tree, _folders(tree, _rooms_of_readers(tree, mutant.file)), [])
    finally:
        path.write_text(before)
        free.put(tree)
    where = f"{mutant.file.removeprefix('hlosharding/')}:{mutant.line}"
    change = mutant.change.replace("|", "\\|")
    print(
        f"| {number} | {where} | `{change}` | {quick or 'missed'} | {rooms or ('' if quick else 'missed')} |",
        flush=True,
    )
    return bool(rooms)


def _caught_by_quick_set(tree: Path, file: str) -> str:
    room = Path(file).parts[1]
    return _failing(tree, _folders(tree, [room]), QUICK) or _failing(tree, [], QUICK)


def _failing(tree: Path, folders: Sequence[str], options: Sequence[str]) -> str:
    """The first test that fails; "" where none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *options, *folders]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    try:
        ran = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    if ran.returncode in (0, 5):  # 5: no test was there to run
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (?:\S*/)?(\S+?)(?:\[.*)?(?: - .*)?$", ran.stdout, re.MULTILINE)
    return found[1] if found else "pytest ends"


def _folders(tree: Path, rooms: Sequence[str]) -> list[str]:
    folders = [f"{kind}/{room}" for room in rooms for kind in ("tests/unit", "hlosharding")]
    return [folder for folder in folders if (tree / folder).is_dir()]


def _rooms_of_readers(tree: Path, file: str) -> list[str]:
    """The file's own room, and those that import a name that it defines."""
    own = Path(file).parts[1]
    nodes = ast.walk(ast.parse((tree / file).read_text()))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    files = (tree / "hlosharding").rglob("*.py")
    readers = [path for path in files if defined & _imported_from(path, f"hlosharding.{own}")]
    return sorted({own, *(path.relative_to(tree).parts[1] for path in readers)})


def _imported_from(path: Path, module: str) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if node.module == module for alias in node.names}


if __name__ == "__main__":
    main()
