"""Record the live pass's answers (development): `HLOSHARDING_ORACLE=<program> python -m tests.oracle.record`.

Writes `data/opcodes.json` and `data/random.json`.  Only live XLA's answers are ever written here, never our own; the
cells of the coverage table are those of steps that XLA logged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.oracle import coverage
from tests.oracle.differential import compare, draw
from tests.oracle.opcode_modules import BODIES, opcode_module
from tests.oracle.oracle_program import Answer
from tests.oracle.step_log import LoggedOracle, agreed

DATA = Path(__file__).parent / "data"
RANDOM_MODULES, FIRST_SEED, LONGEST = 300, 20261121, 5000
_NEW_CELLS = 6
"""Every third module is taken as it is drawn; of the others, those that fill so many cells for the first time."""
OPCODE_OPTIONS: list[dict[str, Any]] = [{}, {"to_outputs": True, "to_parameters": True}, {"is_spmd": False}]


def written(found: Answer, options: dict[str, Any]) -> dict[str, Any]:
    """One answer for the file; a module on which XLA aborts is recorded as such."""
    if found.error is not None:
        return {"options": options, "error": "aborts" if found.crashed else found.error}
    # Most instructions of a module share few shardings: name each once.
    texts = sorted({s for s in found.shardings.values() if s is not None})
    shardings = {name: texts.index(s) for name, s in found.shardings.items() if s is not None}
    none = [name for name, s in found.shardings.items() if s is None]
    return {"options": options, "changed": found.changed, "texts": texts, "shardings": shardings, "none": none}


def random_answers(oracle: LoggedOracle) -> Iterator[dict[str, Any]]:
    """Modules of the long run with XLA's answers, chosen so that together they fill many cells."""
    filled: set[coverage.Cell] = set()
    taken, seed = 0, FIRST_SEED - 1
    while taken < RANDOM_MODULES:
        seed += 1
        hlo, options = draw(seed)
        # The answers are part of the repository: the longest modules are left to `differential`.
        if len(hlo) > LONGEST:
            continue
        found, different, ours = compare(oracle, hlo, options)
        logged = oracle.steps()
        agrees = found.error is None and not different
        steps = agreed(ours[0], ours[1], logged, found.renamed) if ours is not None and agrees else []
        cells = set(coverage.cells(ours[0], steps)) if ours is not None else set()
        if different or (taken % 3 and len(cells - filled) < _NEW_CELLS):
            continue
        taken += 1
        fresh, filled = sorted(cells - filled), filled | cells
        yield {"seed": seed, "hlo": hlo} | written(found, options) | {"cells": [coverage.name(cell) for cell in fresh]}


def main() -> None:
    """Ask and write."""
    oracle = LoggedOracle()
    opcodes = {op: [written(oracle.ask(opcode_module(op), **o), o) for o in OPCODE_OPTIONS] for op in sorted(BODIES)}
    random = list(random_answers(oracle))
    oracle.close()
    head = {"jaxlib": version("jaxlib"), "pass": "sharding-propagation"}
    for name, answers in (("opcodes", opcodes), ("random", random)):
        (DATA / f"{name}.json").write_text(json.dumps({**head, "answers": answers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
