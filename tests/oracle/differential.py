"""Random modules, ours against live XLA's bare pass (development): `python -m tests.oracle.differential N SEED [JOBS]`.

`HLOSHARDING_ORACLE` names the oracle program.  Printed are counts, every difference that no entry of `known_exceptions`
explains as a minimal module, and the coverage table.  The exit status is 1 if there is such a difference.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hlosharding.errors import HloShardingError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import Module
from hlosharding.propagation import Change, Propagation, propagate
from hlosharding.sharding import HloSharding
from tests.oracle import coverage
from tests.oracle.known_exceptions import Differences, explanation
from tests.oracle.oracle_program import Answer, OracleProgram, one_spelling
from tests.oracle.policy_cells import possible_cells
from tests.oracle.random_directed import directed_module
from tests.oracle.random_modules import random_module
from tests.oracle.shrink import shrink
from tests.oracle.step_log import LoggedOracle, LogStep, agreed
from tests.xla_mirror.record import lines_by_name, sharding_of_line

SIZES = (2, 4, 6, 10, 10, 20, 30, 40)
"""Families of ops drawn for a module."""
INSTRUCTIONS = range(5, 201)
"""How many a module has."""
_BATCH = 50
_CELLS = sorted(possible_cells())
_IMPOSSIBLE = sorted(coverage.all_cells() - possible_cells())
_BUGS = (IndexError, KeyError, TypeError, AttributeError, ValueError, AssertionError)
_AIMS = 7
"""Cells that a directed module aims at, while all are aimed at."""
_LAST = 10
"""The last tenth of the modules aims only at what is still empty."""


@dataclass
class Tally:
    """What some modules showed."""

    counts: Counter[str] = field(default_factory=Counter)
    sizes: list[int] = field(default_factory=list)
    cells: Counter[coverage.Cell] = field(default_factory=Counter)
    opcodes: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def take_steps(self, steps: list[Change], logged: Counter[LogStep], module: Module) -> None:
        """Count the cells of the steps that XLA logged too."""
        self.counts["steps that XLA logged"] += logged.total()
        self.counts["steps that XLA logged, and we took"] += len(steps)
        self.cells += coverage.cells(module, steps)

    def add(self, other: Tally) -> None:
        """Take in another tally."""
        self.counts += other.counts
        self.cells += other.cells
        self.opcodes += other.opcodes
        self.sizes += other.sizes
        self.unexplained += other.unexplained


def draw(seed: int, cells: Sequence[coverage.Cell] = _CELLS) -> tuple[str, dict[str, Any]]:
    """The module and the options of a seed: every other one aims at these cells of the coverage table, one by one."""
    rng = random.Random(seed)
    hlo, tries = "", 0
    while not hlo or _size(hlo) not in INSTRUCTIONS:
        hlo = _directed(seed, rng, cells) if seed % 2 else _anything(seed + tries * 1_000_000_007, rng)
        tries += 1
    options = _options(hlo, rng)
    if "{unreduced}" in one_spelling(hlo) and rng.random() < 0.8:
        options["is_spmd"] = False  # for SPMD XLA mostly ends at a value that is nothing but unreduced
    return hlo, options


def _directed(seed: int, rng: random.Random, cells: Sequence[coverage.Cell]) -> str:
    """Aims at the next few cells, now and then at one that is said to be impossible."""
    # The fewer are left, the fewer at once: where XLA dies of one, the others do not count.
    count = max(2, _AIMS * len(cells) // len(_CELLS))
    aims = [cells[(seed // 2 * count + n) % len(cells)] for n in range(count)]
    if rng.random() < 0.3:
        aims[0] = rng.choice(_IMPOSSIBLE)
    return directed_module(rng.getrandbits(32), aims, unreduced=rng.random() < 0.1)


def _anything(seed: int, rng: random.Random) -> str:
    return random_module(
        seed,
        ops=rng.choice(SIZES),
        manual=rng.random() < 0.5,
        groups=rng.random() < 0.6,
        unreduced=rng.random() < 0.1,
        nesting=True,
        metadata=rng.random() < 0.2,
    )


def _size(hlo: str) -> int:
    return sum(" = " in line for line in hlo.splitlines())


def _options(hlo: str, rng: random.Random) -> dict[str, Any]:
    """Every option of the pass, as single switches and as vectors over results and parameters."""
    entry = hlo.partition("ENTRY")[2]
    root = re.search(r"ROOT %\S+ = (\(.*?\)|\S+) [\w-]+\(", entry)
    leaves = len(re.findall(r"\w+\[", root.group(1))) if root else 1
    return {
        "is_spmd": rng.random() < 0.85,
        "propagate_metadata": rng.random() < 0.2,
        "cse_prevention_only": rng.random() < 0.08,
        "to_outputs": _switch(rng, leaves),
        "to_parameters": _switch(rng, entry.count(" parameter(")),
    }


def _switch(rng: random.Random, size: int) -> bool | list[bool]:
    roll = rng.random()
    return roll < 0.3 if roll < 0.7 else [rng.random() < 0.5 for _ in range(size)]


def differences(found: Propagation, answer: Answer) -> Differences:
    """Name -> (ours, XLA's) where they differ in text, metadata included, or in meaning."""
    different: Differences = {}
    # The oracle's table of shardings leaves metadata out; the module's text has it.
    full = {name: sharding_of_line(line) for name, line in lines_by_name(answer.hlo).items()}
    for name, short in answer.shardings.items():
        ours, text = found.shardings[name], full.get(name, short)
        printed = None if ours is None else ours.to_string(metadata=True)
        if name not in full and ours is not None:
            printed = str(ours)
        if printed != text or (text is not None and HloSharding.parse(text) != ours):
            different[name] = (printed, text)
    if found.changed != answer.changed:
        different["changed"] = (found.changed, answer.changed)
    return different


def compare(oracle: OracleProgram, hlo: str, options: dict[str, Any]) -> tuple[Answer, Differences, Any]:
    """(XLA's answer, the differences, our module and outcome if we had one)."""
    answer = oracle.ask(hlo, **options)
    try:
        module = from_hlo_text(hlo)  # shapes that no op has are propagated as well
        found = propagate(module, **options)
    except HloShardingError as error:
        different: Differences = {} if answer.error else {"error": (str(error), None)}
        return answer, different, None
    if answer.error is not None:
        return answer, {} if answer.crashed else {"error": (None, answer.error)}, (module, found)
    return answer, differences(found, answer), (module, found)


def run(seeds: range, cells: Sequence[coverage.Cell] = _CELLS) -> Tally:
    """Compare the modules of those seeds, which aim at those cells."""
    oracle, tally = LoggedOracle(), Tally()
    for seed in seeds:
        try:
            _compare_one(oracle, seed, cells, tally)
        except _BUGS as error:  # an error of ours that is none of HloShardingError: a difference like any other
            tally.counts["UNEXPLAINED"] += 1
            tally.unexplained.append(f"seed {seed}: {type(error).__name__}: {error}")
    oracle.close()
    return tally


def _compare_one(oracle: LoggedOracle, seed: int, cells: Sequence[coverage.Cell], tally: Tally) -> None:
    hlo, options = draw(seed, cells)
    answer, different, outcome = compare(oracle, hlo, options)
    logged = oracle.steps()
    if outcome is not None:
        module: Module = outcome[0]
        tally.sizes.append(len(module.instructions))
        tally.opcodes.update({i.opcode for i in module.instructions})
    if not different and answer.error is None:
        tally.counts["equal"] += 1
        tally.counts["equal and changed"] += answer.changed
        tally.counts["instructions compared"] += len(answer.shardings)
        if outcome is not None:
            tally.take_steps(agreed(outcome[0], outcome[1], logged, answer.renamed), logged, outcome[0])
        return
    if not different and not answer.crashed:
        tally.counts["both refuse"] += 1
        return
    known = explanation(answer, different)
    tally.counts[f"known: {known.name}" if known else "UNEXPLAINED"] += 1
    if known is None:
        tally.unexplained.append(_report(oracle, seed, hlo, options))


def _report(oracle: OracleProgram, seed: int, hlo: str, options: dict[str, Any]) -> str:
    """The difference on a minimal module."""

    def shows(candidate: str) -> bool:
        found = _safely(oracle, candidate, options)
        return found is not None and bool(found[1]) and explanation(*found) is None

    # Vectors fit one module only.
    plain = {name: value if isinstance(value, bool) else any(value) for name, value in options.items()}
    options = plain if (found := _safely(oracle, hlo, plain)) and found[1] else options
    small = shrink(hlo, shows)
    _, different, _ = compare(oracle, small, options)
    return f"seed {seed}, {options}\n{different}\n{small}"


def _safely(oracle: OracleProgram, hlo: str, options: dict[str, Any]) -> tuple[Answer, Differences] | None:
    try:
        answer, different, _ = compare(oracle, hlo, options)
    except (KeyError, ValueError, AssertionError):  # a candidate of the shrinker need not be a module at all
        return None
    return None if answer.error else (answer, different)


def _batches(count: int, seed: int) -> Iterator[range]:
    for start in range(0, count, _BATCH):
        yield range(seed + start, seed + min(count, start + _BATCH))


def report(tally: Tally, count: int, seed: int) -> Iterator[str]:
    """The lines that the command prints."""
    yield f"{count:,} modules from seed {seed}, {min(tally.sizes)} to {max(tally.sizes)} instructions"
    yield from (f"  {number:9,}  {what}" for what, number in sorted(tally.counts.items()))
    yield from (f"\nUNEXPLAINED {text}" for text in tally.unexplained)
    yield from coverage.table(tally.cells, tally.opcodes, possible_cells())


def main(count: int, seed: int, jobs: int = 2) -> int:
    """Run, print, and say by the status whether all is explained, and no impossible cell filled."""
    tally, last = Tally(), count // _LAST
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(run, _batches(count - last, seed)):
            tally.add(part)
        empty = sorted(possible_cells() - set(tally.cells)) or _CELLS
        for part in pool.map(partial(run, cells=empty), _batches(last, seed + count - last)):
            tally.add(part)
    print("\n".join(report(tally, count, seed)))
    return 1 if tally.unexplained or coverage.contradictions(tally.cells, possible_cells()) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
