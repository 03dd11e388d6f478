"""What did clusters take for public training steps, and what does the simulator say?  Nothing is fitted to a row.

`python -m benchmarks.clusters [SET ...]`: a row a run, a line a set; rows that cannot be told with the reason.  The
tables are those of `benchmarks/published/data`, or of the same names in `--folder`.  `--only 4`: so many rows of each
set, spread evenly.  `--markdown docs/clusters.md` writes the sets' tables there, below what people wrote; `--json` all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.published.clusters_page import page, row_record
from benchmarks.published.figures import line_of
from benchmarks.published.pricing import Outcome, all_predicted
from benchmarks.published.runs import DATA, Run, UnsaidError, runs
from benchmarks.published.sets import SETS, RunSet
from hlosharding.progress import counting
from hlosharding.whole_files import write_whole

Rows = list[tuple[Run | UnsaidError, Outcome]]


def main() -> None:
    """Print the tables, and write them where it is asked for."""
    parser = _parser()
    given = parser.parse_args()
    names = given.sets or [name for name in SETS if _tables(given.folder, name)]
    wrong = [_fault(given.folder, name) for name in names] if names else [f"{given.folder} has no table of {DATA}"]
    if any(wrong):
        parser.error("; ".join(filter(None, wrong)))
    rows = told(given.folder, names, given.only, given.workers)
    of = stamp() + (f", {given.only} rows of the set" if given.only else "")
    Console(width=180).print(Markdown(page(rows, of, "")))
    if given.markdown:
        there = given.markdown.read_text() if given.markdown.exists() else "# What clusters took\n\n"
        write_whole(given.markdown, page(rows, of, there))
    if given.json:
        write_whole(given.json, _json(rows))


def told(folder: Path, names: Sequence[str], only: int = 0, workers: int = 1) -> dict[str, Rows]:
    """The rows of each set, with what became of each; one that several sets have is priced once."""
    tables = {table: list(runs(folder, table)) for name in names for table in _tables(folder, name)}
    chosen = {name: _spread(_of_set(SETS[name], tables), only) for name in names}
    every = list(dict.fromkeys(row for rows in chosen.values() for row in rows if isinstance(row, Run)))
    with counting("pricing runs") as progress:
        found = dict(zip(every, all_predicted(every, workers, progress), strict=True))
    return {
        name: [(row, found[row] if isinstance(row, Run) else str(row)) for row in rows] for name, rows in chosen.items()
    }


def _tables(folder: Path, name: str) -> list[str]:
    """Of a set, those that lie there."""
    return [table for table in SETS[name].tables if (folder / f"{table}.csv").exists()]


def _fault(folder: Path, name: str) -> str:
    if name not in SETS:
        return f"no set {name!r}: there are {', '.join(SETS)}"
    return "" if _tables(folder, name) else f"{folder} has no {' or '.join(SETS[name].tables)}.csv"


def _of_set(of: RunSet, tables: dict[str, list[Run | UnsaidError]]) -> list[Run | UnsaidError]:
    return [
        row for table in of.tables for row in tables.get(table, ()) if isinstance(row, UnsaidError) or of.takes(row)
    ]


def _spread(rows: list[Run | UnsaidError], only: int) -> list[Run | UnsaidError]:
    """So many, spread evenly; 0: all."""
    if not only or only >= len(rows):
        return rows
    return [rows[(2 * n + 1) * len(rows) // (2 * only)] for n in range(only)]


def stamp() -> str:
    """When, and of which commit."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, check=True)
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.stdout.strip()}"


def _json(rows: dict[str, Rows]) -> str:
    sets = {
        name: {"line": asdict(line_of(found)), "rows": [row_record(*each) for each in found]}
        for name, found in rows.items()
    }
    return json.dumps({"of": stamp(), "sets": sets}, indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Published training steps, predicted and measured.")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}")
    parser.add_argument(
        "--folder", type=Path, default=DATA, help="tables of the same names, or some of them, that lie elsewhere"
    )
    parser.add_argument("--only", type=int, default=0, metavar="N", help="so many rows of each set; 0: all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="processes that price")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
