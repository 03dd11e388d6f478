"""The error bars that predictions come with, as `docs/clusters.md` has them: a row a set."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path

from benchmarks.published.runs import DATA, Run, runs
from benchmarks.published.sets import SETS, RunSet

ROOT = Path(__file__).resolve().parents[2]
PAGE, FILE = ROOT / "docs" / "clusters.md", ROOT / "hlosharding" / "cost" / "measured_sets.csv"
HEAD = "title machines runtime least_devices most_devices rows median_error worst_error date".split()


def text() -> str:
    """The whole file."""
    page = PAGE.read_text()
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(_row(name, of, page) for name, of in SETS.items())
    return written.getvalue()


def _row(name: str, of: RunSet, page: str) -> list[object]:
    pattern, first_table = rf"^\| {re.escape(of.title)} \(`{name}`\) \|(.*)\|$", page.partition("<!-- set ")[0]
    [line] = re.findall(pattern, first_table, re.MULTILINE)
    told, median, worst = (cell.strip() for cell in line.split("|")[:3])
    date = page.partition(f"<!-- set {name} -->")[2].partition("Priced on ")[2].partition(",")[0]
    ran = [run for table in of.tables for run in runs(DATA, table) if isinstance(run, Run) and of.takes(run)]
    machines, devices = sorted({run.machine for run in ran}), [run.plan.num_devices for run in ran]
    [runtime] = {run.runtime for run in ran}
    errors = (round(float(share.rstrip("%")) / 100, 4) for share in (median, worst))
    return [of.title, " ".join(machines), runtime, min(devices), max(devices), told.split()[0], *errors, date]
