"""Collectives as they were measured, or as a model that was fitted to measurements has them, beside ours.

`python -m benchmarks.collectives [FOLDER]`: FOLDER holds the tables, by default `published/data`.  vTrain measured
all-reduces of A100s over NVLink; autoparallel's model of NCCL (`autoparallel/cost_models/nccl_cost_model.py` of
meta-pytorch/autoparallel, 2026-06) is fitted to nccl-tests on H100s, eight a node.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.table import Table

from benchmarks.verdict import finish, judged
from hlosharding.cost import collective_time, machines

FOLDER = Path(__file__).parent / "published" / "data"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table, the preset that it is of, and how far off we may be."""

    machine: str
    of: str
    mean: float
    worst: float


SOURCES = {
    "vtrain_a100_allreduce": Source(machine="a100", of="measured", mean=0.05, worst=0.15),
    "autoparallel_h100_nccl": Source(machine="h100", of="autoparallel's model", mean=0.25, worst=0.25),
}


@dataclass(frozen=True, kw_only=True)
class Collective:
    """A row of a table."""

    kind: str
    gpus: int
    nbytes: int
    seconds: float

    def ratio(self, machine: str) -> float:
        """Our time over the one that is given."""
        preset = getattr(machines, machine)(self.gpus)
        return collective_time(self.kind, self.nbytes, self.gpus, None, preset) / self.seconds


def collectives(folder: Path, name: str) -> Iterator[Collective]:
    """The rows of a table; where it names no kind they are all-reduces."""
    with (folder / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield Collective(
                kind=row.get("kind", "all-reduce"),
                gpus=int(row["gpus"]),
                nbytes=int(row["bytes"]),
                seconds=float(row["microseconds"]) / 1e6,
            )


def errors(ratios: Sequence[float]) -> tuple[float, float]:
    """Mean and worst."""
    off = [abs(ratio - 1) for ratio in ratios]
    return mean(off), max(off)


def main() -> None:
    """Print a row for each kind and number of GPUs; fail where a limit is missed."""
    parser = argparse.ArgumentParser(description="Collectives, predicted and measured.")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder, kept = parser.parse_args().folder, list[bool]()
    table = Table("collective", "GPUs", "beside", "rows", "ours / theirs", "mean error", "worst", title="Collectives")
    for name, source in SOURCES.items():
        found = defaultdict[tuple[str, int], list[float]](list)
        for row in collectives(folder, name):
            found[row.kind, row.gpus].append(row.ratio(source.machine))
        found["all", 0] = [ratio for ratios in found.values() for ratio in ratios]
        for (kind, gpus), ratios in found.items():
            verdicts = [judged(*each) for each in zip(errors(ratios), (source.mean, source.worst), strict=True)]
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            gpu = f"{gpus or ''} {source.machine}"
            table.add_row(kind, gpu, source.of, str(len(ratios)), spread, *(text for text, _ in verdicts))
            kept += [good for _, good in verdicts[not gpus or 1 :]]
        table.add_section()
    finish(table, kept)


if __name__ == "__main__":
    main()
