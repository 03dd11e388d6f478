"""`python -m benchmarks.iopddl FILE ...`: instances of a public contest, solved as choices of placements are.

The contest on intra-operator parallelism of ASPLOS and EuroSys 2025 has 25 of them, exported from XLA's auto-sharding;
they are not part of this repository: github.com/google/iopddl, `benchmarks/`.  Each is solved within the contest's
limit, reading included; beside it stands what the best of its 20 teams found (the organisers' table).

`python -m benchmarks.iopddl --of "GPT" --devices 8 FILE.json`: a model of the zoo in that format, for who
has another solver.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hlosharding.cost import machines
from hlosharding.partitioner import Prices
from hlosharding.search.choices import SOLVERS, Choices, SelectionProblem, solve_choices
from hlosharding.search.optimum import ProgramChoices, Weights
from hlosharding.sharding import TileAssignment

INFINITE = 1e18
"""As the files say that a choice is forbidden."""
BEST = {
    "A": 6.549e9, "B": 532_843, "C": 8.41e10, "D": 3.136e11, "E": 3.39e11, "F": 3.64e11, "G": 217_039, "H": 5.28e11,
    "I": 5.84e11, "J": 1.361e12, "K": 2.274e9, "L": 1.971e9, "M": 4.993e10, "N": 2.027e11, "O": 2.229e11, "P": 6.62e11,
    "Q": 5.27e11, "R": 3.719e11, "S": 1.535e9, "T": 6.829e11, "U": 2.569e9, "V": 1_632_051, "W": 1.182e13,
    "X": 2.805e11, "Y": 6.212e11,
}  # fmt: skip
LIMITS = {"ABCDE": 60, "FGHIJ": 120, "KLMNO": 180, "PQRST": 240, "UVWXY": 300}
"""The contest's, in seconds."""
_RESERVE = 5.0
"""Seconds of these for what is not asked for time."""


def read_instance(path: Path) -> SelectionProblem:
    """An instance, as JSON or gzip of it."""
    text = path.read_bytes()
    given = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)["problem"]
    nodes, edges = given["nodes"], given["edges"]
    costs = tuple(map(_costs, nodes["costs"]))
    pairs = np.array(edges["nodes"], np.int64).reshape(-1, 2)
    tables = zip(edges["costs"], pairs.tolist(), strict=True)
    intervals = np.array(nodes["intervals"], np.int64)
    live = np.flatnonzero(intervals[:, 0] < intervals[:, 1])
    return SelectionProblem(
        costs,
        pairs,
        tuple(_costs(row).reshape(len(costs[a]), len(costs[b])) for row, (a, b) in tables),
        live,
        intervals[live],
        tuple(np.array(nodes["usages"][node], float) for node in live),
        np.full(int(intervals.max(initial=0)), float(given.get("usage_limit", np.inf))),
    )


def _costs(row: list[int]) -> Any:
    found = np.array(row, float)
    return np.where(found < INFINITE, found, np.inf)


def write_instance(problem: SelectionProblem, path: Path) -> None:
    """A problem as JSON; costs in whole picoseconds, memory in whole bytes.

    A node has one buffer in that format: of each further one comes a node that must choose as its owner does.
    """
    owners = problem.owners.tolist()
    first = {owner: buffer for buffer, owner in reversed(list(enumerate(owners)))}
    further = [buffer for buffer, owner in enumerate(owners) if first[owner] != buffer]
    of_node = [*(first.get(node) for node in range(problem.num_nodes)), *further]
    costs = [*problem.costs, *(np.zeros(len(problem.usages[buffer])) for buffer in further)]
    alike = [np.where(np.eye(len(problem.usages[buffer]), dtype=bool), 0.0, np.inf) for buffer in further]
    tied = [[owners[buffer], problem.num_nodes + n] for n, buffer in enumerate(further)]
    record = {
        "nodes": {
            "intervals": [[0, 0] if b is None else problem.intervals[b].tolist() for b in of_node],
            "costs": [_whole(1e12 * row) for row in costs],
            "usages": [
                [0] * len(row) if b is None else _whole(problem.usages[b])
                for row, b in zip(costs, of_node, strict=True)
            ],
        },
        "edges": {
            "nodes": [*problem.pairs.tolist(), *tied],
            "costs": [_whole(1e12 * table.ravel()) for table in (*problem.pair_costs, *alike)],
        },
        "usage_limit": int(problem.capacity.min()),
    }
    path.write_text(json.dumps({"problem": record}))


def _whole(row: Any) -> list[int]:
    return [int(INFINITE) if value == np.inf else round(value) for value in row.tolist()]


def problem_of(name: str, devices: int) -> SelectionProblem:
    """Of a model of the zoo without its annotations, over so many H100s: all reshards planned."""
    from benchmarks.zoo import MODELS
    from benchmarks.zoo_optima import unannotated

    model = next(model for model in MODELS if name in model.name)
    module = unannotated(model, 1)
    machine = machines.h100(devices)
    choices = ProgramChoices(module, TileAssignment.from_iota((devices,)), Prices(machine))
    choices.table.plan({number for edge in choices.edges for number in edge.reshards.ravel().tolist()})
    return choices.problem(Weights(1.0, 1.0), machine.memory_bytes)


def main(arguments: list[str]) -> int:
    """A line per file; 1 where nothing was found that fits."""
    parser = argparse.ArgumentParser(description="instances of a contest on choices of placements")
    parser.add_argument("--of", metavar="MODEL", help="write this model of the zoo in place of reading")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--solver", choices=SOLVERS, default="highs", help="of integer programs")
    parser.add_argument("files", nargs="+", metavar="FILE")
    given = parser.parse_args(arguments)
    if given.of:
        write_instance(problem_of(given.of, given.devices), Path(given.files[0]))
        return 0
    return solve(given.files, given.solver)


def solve(paths: list[str], solver: str) -> int:
    """Print a line for each; 1 where nothing was found that fits."""
    missed = 0
    print("instance  nodes   edges           cost          bound  of the best team's   wall s    CPU s  limit s")
    for path in map(Path, paths):
        start, cpu = time.monotonic(), time.process_time()
        name = path.name.split(".")[0].rpartition("-")[2]
        problem = read_instance(path)
        limit = next((seconds for names, seconds in LIMITS.items() if name in names), 60)
        found = solve_choices(problem, limit - _RESERVE - (time.monotonic() - start), solver=solver)
        missed |= int(found.chosen is None or not problem.is_feasible(found.chosen))
        print(_line(name, problem, found, time.monotonic() - start, time.process_time() - cpu, limit), flush=True)
    return missed


def _line(name: str, problem: SelectionProblem, found: Choices, wall: float, cpu: float, limit: float) -> str:
    said = f"{name:8} {problem.num_nodes:6} {len(problem.pairs):7} {found.cost:14,.0f} {found.bound:14,.0f} "
    fits = found.chosen is not None and problem.is_feasible(found.chosen)
    of_best = f"{found.cost / BEST[name]:.4f}" if fits and name in BEST else "fits" if fits else "does not fit"
    return f"{said} {of_best + (', proven' if found.is_proven else ''):>18} {wall:8.1f} {cpu:8.1f} {limit:8.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
