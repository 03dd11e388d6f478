"""Write tests/oracle/data/sharding_utils.json: what live XLA's sharding utilities answer.  Development only.

    HLOSHARDING_ORACLE=<oracle program> python -m tests.oracle.record_sharding [questions for each utility]

Only live XLA writes this file, never our own output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jaxlib

from tests.oracle.oracle_program import OracleProgram
from tests.oracle.sharding_cases import Questions, live_answer

DATA = Path(__file__).parent / "data" / "sharding_utils.json"


def record(each: int, seed: int = 7) -> None:
    """Ask, and write one line for each answer."""
    oracle = OracleProgram()
    lines: list[str] = []
    for name, args in Questions(seed).all(each):
        result = oracle.job({"do": "util", "fn": name, "args": args})
        if not result["ok"]:
            print(f"no answer: {name} {args}: {result.get('error', '')[-200:]}")
            continue
        lines.append(json.dumps([name, args, live_answer(result)], separators=(",", ":")))
    head = json.dumps({"jaxlib": jaxlib.__version__, "seed": seed})[1:-1]
    DATA.write_text(f'{{{head}, "answers": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{len(lines)} answers, {DATA.stat().st_size} bytes")


if __name__ == "__main__":
    record(int(sys.argv[1]) if len(sys.argv) > 1 else 90)
