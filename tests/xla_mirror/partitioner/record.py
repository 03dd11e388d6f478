"""Writes what live XLA's program costs: `HLOSHARDING_ORACLE=<oracle program> python -m tests.xla_mirror.partitioner.record`.

Development only.  Of XLA's partitioned module only figures are kept: bytes received (raw, and ideal: credited for passes
that follow on accelerators) and FLOPs.  `known` is how our own module stands to them, where that is not as it should
be; the test asserts it both ways.  README.md, the table, is written too.  Names of topics on the command line: only those.  XLA_FLAGS must give 8 CPU devices.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import Any

from benchmarks.ideal import ideal_bytes
from hlosharding.errors import HloShardingError
from tests.oracle.oracle_program import OracleProgram
from tests.properties.program_check import WrongResult
from tests.xla_mirror.partitioner.cases import FOLDER, Case, all_cases
from tests.xla_mirror.partitioner.running import check, figures, loaded, partitioned
from tests.xla_mirror.partitioner.standing import RECORDED, byte_standing, recorded
from tests.xla_mirror.partitioner.table import README, table


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
    return {"raw": found.received_bytes, "ideal": ideal_bytes(module), "flops": found.flops}


def standing(case: Case, answer: dict[str, Any]) -> str:
    """What is not as it should be; empty if nothing."""
    try:
        local = partitioned(case)
        if not case.unrun:
            check(case, local)
    except WrongResult as wrong:
        print(f"{case.topic} {case.name} ({case.mirrors}): WRONG {wrong}", flush=True)
        return "wrong result"
    except HloShardingError as refused:
        print(f"{case.topic} {case.name} ({case.mirrors}): {type(refused).__name__} {refused}", flush=True)
        return f"refused: {type(refused).__name__}"
    except Exception as broken:  # a finding, to be reported with all others
        print(f"{case.topic} {case.name} ({case.mirrors}): BROKEN {type(broken).__name__} {broken}"[:600], flush=True)
        return f"broken: {type(broken).__name__}"
    ours = figures(local.module)
    found = byte_standing(ours, answer)
    if found == "more bytes":
        print(f"{case.topic} {case.name} ({case.mirrors}): {ours.received_bytes:g} bytes, XLA {answer}", flush=True)
    return found if found == "more bytes" else ""


def main(topics: list[str]) -> None:
    """Ask, compare, write."""
    oracle = OracleProgram()
    answers = {name: a for name, a in recorded().items() if topics}
    for case in all_cases():
        if topics and case.topic not in topics:
            continue
        answer = ask(oracle, case)
        known = standing(case, answer)
        answers[case.name] = {**answer, **({"known": known} if known else {})}
    oracle.close()
    names = [c.name for c in all_cases() if c.name in answers]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answers[name])}" for name in names)
    RECORDED.write_text(f'{{"jaxlib": "{version("jaxlib")}", "answers": {{\n{lines}\n}}}}\n')
    README.write_text(table())
    kinds = [answers[name].get("known", "right") for name in names]
    print({kind: kinds.count(kind) for kind in sorted(set(kinds))}, "in", FOLDER.name)


if __name__ == "__main__":
    main(sys.argv[1:])
