"""Are ONNX's own node tests met?  `python -m benchmarks.onnx_nodes [PATTERN] [--devices 2,4] [--seed N]`

Every case that the onnx package brings is loaded and run on one device; then, with a random sharding of its inputs,
partitioned on 2 and on 4 devices.  Prints how many are met, how many are refused and why, and each that is wrong.
Status 1 where one is.  The work is done in processes of its own: an abort inside XLA costs one share of the cases.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from zlib import crc32

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.workers import JOBS, tell, told
from hlosharding.errors import LoadError

_SHARES = 8
_SECONDS = 3000


def main() -> None:
    """Run, count, print."""
    parser = argparse.ArgumentParser(description="Are ONNX's own node tests met?")
    parser.add_argument("pattern", nargs="?", default="", help="a regular expression of names (default: all)")
    parser.add_argument("--devices", default="2,4", help="numbers of devices to partition for (default: 2,4)")
    parser.add_argument("--how", choices=("run", "local", "reference"), default="run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options)
    else:
        sys.exit(_report(options))


def _work(options: argparse.Namespace) -> None:
    counts = [int(n) for n in options.devices.split(",") if n]
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={max(counts, default=1)}"
    from tests.support.onnx_cases import node_cases, node_modules

    for name, case in (pair for module in node_modules() for pair in node_cases(module).items()):
        if crc32(name.encode()) % _SHARES == options.share and re.search(options.pattern, name):
            tell({"name": name, **_met(case, counts, options)})


def _met(case: Any, counts: list[int], options: argparse.Namespace) -> dict[str, Any]:
    from tests.support.onnx_cases import check_on_one_device, check_partitioned, has_values

    try:
        module = case.load()
    except LoadError as error:
        return {"refused": error.what}
    split = 0
    try:
        check_on_one_device(case, module, has_values=has_values(case.name))
        for devices in counts:
            split += check_partitioned(
                case, module, devices, Random(f"{options.seed} {case.name} {devices}"), options.how
            )
    except Exception as error:  # noqa: BLE001  (whatever went wrong is the finding)
        return {"failed": f"{type(error).__name__}: {error}"[:400], "split": split}
    return {"split": split}


def _report(options: argparse.Namespace) -> int:
    words = [options.pattern, "--devices", options.devices, "--how", options.how, "--seed", str(options.seed)]

    def share(number: int) -> tuple[list[dict[str, Any]], str]:
        return told("onnx_nodes", [*words, "--share", str(number), "--worker"], _SECONDS)

    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(track(pool.map(share, range(_SHARES)), "cases", total=_SHARES, transient=True))
    rows = sorted((row for found, _ in answers for row in found), key=lambda row: row["name"])
    died = [errors for _, errors in answers if errors]
    console = Console()
    console.print(_table(rows))
    for row in rows:
        if "failed" in row:
            console.print(f"{row['name']}: {row['failed']}", markup=False)
    for errors in died:
        console.print(f"a share was cut short: {errors[-300:]}", markup=False)
    return bool(died) or any("failed" in row for row in rows)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{len(rows)} node tests")
    table.add_column("cases", justify="right")
    table.add_column("what becomes of them")
    table.add_row(str(sum("failed" not in r and "refused" not in r for r in rows)), "met on one device")
    table.add_row(str(sum(r.get("split", 0) for r in rows)), "runs partitioned, with the same numbers")
    table.add_row(str(sum("failed" in r for r in rows)), "wrong")
    for reason, count in Counter(r["refused"] for r in rows if "refused" in r).most_common():
        table.add_row(str(count), f"refused: {reason}")
    return table


if __name__ == "__main__":
    main()
