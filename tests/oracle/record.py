"""Record the live pass's answers (development): `HLOSHARDING_ORACLE=<program> python -m tests.oracle.record`.

Writes `data/opcodes.json` and `data/random.json`.  Only live XLA's answers are ever written here, never our own.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.oracle.opcode_modules import BODIES, opcode_module
from tests.oracle.oracle_program import OracleProgram
from tests.oracle.random_modules import random_module

DATA = Path(__file__).parent / "data"
RANDOM_MODULES = 100
OPCODE_OPTIONS: list[dict[str, Any]] = [{}, {"to_outputs": True, "to_parameters": True}, {"is_spmd": False}]
RANDOM_OPTIONS: list[dict[str, Any]] = [
    {},
    {"to_outputs": True},
    {"to_parameters": True},
    {"to_outputs": True, "to_parameters": True},
    {"is_spmd": False},
    {"propagate_metadata": True},
    {"cse_prevention_only": True},
]


def answer(oracle: OracleProgram, hlo: str, options: dict[str, Any]) -> dict[str, Any]:
    """One recorded answer; a module on which XLA aborts is recorded as such."""
    found = oracle.ask(hlo, **options)
    if found.error is not None:
        return {"options": options, "error": "aborts" if found.crashed else found.error}
    # Most instructions of a module share few shardings: name each once.
    texts = sorted({s for s in found.shardings.values() if s is not None})
    shardings = {name: texts.index(s) for name, s in found.shardings.items() if s is not None}
    none = [name for name, s in found.shardings.items() if s is None]
    return {"options": options, "changed": found.changed, "texts": texts, "shardings": shardings, "none": none}


def main() -> None:
    """Ask and write."""
    oracle = OracleProgram()
    opcodes = {op: [answer(oracle, opcode_module(op), o) for o in OPCODE_OPTIONS] for op in sorted(BODIES)}
    random = []
    for seed in range(RANDOM_MODULES):
        hlo = random_module(seed)
        random.append({"seed": seed, "hlo": hlo} | answer(oracle, hlo, RANDOM_OPTIONS[seed % len(RANDOM_OPTIONS)]))
    oracle.close()
    head = {"jaxlib": version("jaxlib"), "pass": "sharding-propagation"}
    for name, answers in (("opcodes", opcodes), ("random", random)):
        (DATA / f"{name}.json").write_text(json.dumps({**head, "answers": answers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
