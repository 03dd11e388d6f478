"""Record the live pass's answers (development): `HLOSHARDING_ORACLE=<program> python -m tests.oracle.record`.

Writes `data/opcodes.json` and `data/random.json`.  Only live XLA's answers are ever written here, never our own.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.oracle.differential import draw
from tests.oracle.opcode_modules import BODIES, opcode_module
from tests.oracle.oracle_program import OracleProgram

DATA = Path(__file__).parent / "data"
RANDOM_MODULES, FIRST_SEED, LONGEST = 300, 20261121, 6000
OPCODE_OPTIONS: list[dict[str, Any]] = [{}, {"to_outputs": True, "to_parameters": True}, {"is_spmd": False}]


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
    random: list[dict[str, Any]] = []
    seed = FIRST_SEED
    while len(random) < RANDOM_MODULES:
        hlo, options = draw(seed)
        # The answers are part of the repository: the longest modules are left to `differential`.
        if len(hlo) <= LONGEST and "unreduced" not in hlo:
            random.append({"seed": seed, "hlo": hlo} | answer(oracle, hlo, options))
        seed += 1
    oracle.close()
    head = {"jaxlib": version("jaxlib"), "pass": "sharding-propagation"}
    for name, answers in (("opcodes", opcodes), ("random", random)):
        (DATA / f"{name}.json").write_text(json.dumps({**head, "answers": answers}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
