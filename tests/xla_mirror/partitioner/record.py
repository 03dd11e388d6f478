"""Writes what live XLA's program costs: `python -m tests.xla_mirror.partitioner.record [topic ...]`, 8 CPU devices.

Development only.  HLOSHARDING_ORACLE names the oracle program.  Of XLA's partitioned module only figures stay: bytes
received (raw, and ideal: credited for passes that follow on accelerators) and FLOPs; of an exempt case the program,
too.  `known` says what is not as it should be with our own program, `ours` its figure; the test asserts `known` both
ways.  Without an oracle XLA's figures stay, and only `known` is written anew.  `rings`: loops of permutes that a
product becomes on demand.  README.md, the table, is written too.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

from benchmarks.ideal import ideal_bytes
from tests.oracle.oracle_program import OracleProgram
from tests.xla_mirror.partitioner.cases import Case, all_cases
from tests.xla_mirror.partitioner.running import Figures, figures, loaded
from tests.xla_mirror.partitioner.standing import PRODUCTS, RECORDED, moves_more, recorded, rings, standing
from tests.xla_mirror.partitioner.table import README, table

_OURS = ("known", "ours", "rings")


def ask(oracle: OracleProgram, case: Case) -> dict[str, Any]:
    """Live XLA's figures for one case."""
    options = {"num_partitions": case.devices}
    job = {"do": "partition", "hlo": case.hlo, "backend": "direct", "num_partitions": case.devices, "options": options}
    result = oracle.job(job)
    if result.get("crash"):
        return {"aborts": True}
    if not result["ok"]:
        if "yntax" in result["error"] or "Parser" in result["error"]:
            raise ValueError(f"{case.name}: {result['error']}\n{case.hlo}")
        return {"error": result["error"][:200]}
    module = loaded(result["hlo"], case.devices)
    found = figures(module)
    answer = {"raw": found.received_bytes, "ideal": ideal_bytes(module), "flops": found.flops}
    return answer | {"program": result["hlo"]} if case.exempt else answer


def main(topics: list[str]) -> None:
    """Ask, compare, write."""
    oracle = OracleProgram() if "HLOSHARDING_ORACLE" in os.environ else None
    before = recorded()
    answers: dict[str, dict[str, Any]] = {name: a for name, a in before.items() if topics}
    for case in all_cases():
        if topics and case.topic not in topics:
            continue
        old = {key: value for key, value in before.get(case.name, {}).items() if key not in _OURS}
        answer = ask(oracle, case) if oracle else old
        found = standing(case, answer)
        if found.known:
            print(f"{case.topic} {case.name} ({case.mirrors}): {found.known}: {found.behind}", flush=True)
            answer["known"] = found.known
            answer |= {"ours": _behind(found.known, found.ours)} if found.ours else {}
        if case.topic in PRODUCTS:
            answer |= {"rings": rings(case, answer)}
        if case.exempt and found.ours and moves_more(found.ours, answer):
            answer["ours"] = found.ours.received_bytes
        answers[case.name] = answer
    if oracle:
        oracle.close()
    _write(answers)


def _behind(known: str, ours: Figures) -> float:
    return ours.flops if known == "more FLOPs" else ours.received_bytes


def _write(answers: dict[str, dict[str, Any]]) -> None:
    names = [c.name for c in all_cases() if c.name in answers]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in names)
    RECORDED.write_text(f'{{"jaxlib": "{version("jaxlib")}", "answers": {{\n{lines}\n}}}}\n')
    README.write_text(table())
    kinds = [answers[name].get("known", "right") for name in names]
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))})


if __name__ == "__main__":
    main(sys.argv[1:])
