"""Writes what live XLA answers: `HLOSHARDING_ORACLE=<oracle program> python -m tests.xla_mirror.record [topic ...]`.

Development only.  One file of `recorded/` for each topic, and README.md, the table of XLA's tests and ours.  Nothing
but live XLA ever writes these answers.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from tests.oracle.oracle_program import OracleProgram, oracle_options
from tests.oracle.sharding_cases import live_answer
from tests.xla_mirror.cases import RECORDED, Case, Run, all_cases
from tests.xla_mirror.texts import TEXTS
from tests.xla_mirror.utilities import all_questions

_LINE = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = ", re.MULTILINE)
_COPY = re.compile(r" copy\(%([\w.\-]+)\)")


def sharding_of_line(line: str) -> str | None:
    """The `sharding={...}` of a printed instruction, metadata included.

    >>> sharding_of_line('%a = f32[2] copy(%b), sharding={devices=[2]<=[2] metadata={op_name="x"}}, metadata={}')
    '{devices=[2]<=[2] metadata={op_name="x"}}'
    """
    start = line.find(", sharding={")
    if start < 0:
        return None
    start += len(", sharding=")
    depth = 0
    for end in range(start, len(line)):
        depth += {"{": 1, "}": -1}.get(line[end], 0)
        if depth == 0:
            return line[start : end + 1]
    raise ValueError(f"braces do not close: {line}")


def lines_by_name(hlo: str) -> dict[str, str]:
    """Instruction name -> its line."""
    named = ((_LINE.match(line), line) for line in hlo.splitlines())
    return {match.group(1): line for match, line in named if match}


def _description(name: str, asked: dict[str, str], answered: dict[str, str]) -> str:
    """What a copy that XLA put in place of an annotation copies; other instructions have their names."""
    if name in asked:
        return name
    copied = _COPY.search(answered[name])
    if copied is None:
        raise ValueError(f"an instruction that is new, but no copy: {answered[name]}")
    return f"copy of {_description(copied.group(1), asked, answered)}"


def ask(oracle: OracleProgram, hlo: str, run: Run) -> dict[str, Any]:
    """Live XLA's answer to one module under one set of options."""
    options = oracle_options(**run.options)
    result = oracle.job({"do": "propagate", "hlo": hlo, "backend": "direct", "options": options})
    if result.get("crash"):
        return {"aborts": True}
    if not result["ok"]:
        if "Parser" in result["error"] or "line" in result["error"][:40]:
            raise ValueError(f"{result['error']}\n{hlo}")
        return {"error": result["error"]}
    asked, answered = lines_by_name(hlo), lines_by_name(result["hlo"])
    new = {name: line for name, line in answered.items() if name not in asked}
    copies = [[_description(name, asked, answered), sharding_of_line(line)] for name, line in new.items()]
    kept = {name: sharding_of_line(line) for name, line in answered.items() if name in asked}
    return {"changed": result["changed"], "shardings": kept, "copies": sorted(copies)}


def record_case(oracle: OracleProgram, case: Case) -> list[dict[str, Any]]:
    """The answers of a case; runs with the same answer share one."""
    answers: list[dict[str, Any]] = []
    for run in case.runs:
        answer = ask(oracle, case.hlo_for(run), run)
        same = next((a for a in answers if {k: v for k, v in a.items() if k != "runs"} == answer), None)
        if same is None:
            answers.append({"runs": [str(run)], **answer})
        else:
            same["runs"].append(str(run))
    return answers


def record_utilities(oracle: OracleProgram) -> dict[str, list[Any]]:
    """What live XLA's utilities answer to each question's calls."""
    return {
        question.name: [
            live_answer(_answered(oracle, {"do": "util", "fn": fn, "args": args})) for fn, args in question.calls
        ]
        for question in all_questions()
    }


def record_texts(oracle: OracleProgram) -> dict[str, list[str | None]]:
    """How live XLA prints each sharding text, metadata included, once it has parsed it."""
    found: dict[str, list[str | None]] = {}
    for name, (text, shape) in TEXTS.items():
        hlo = f"HloModule text\n\nENTRY %main {{\n  ROOT %x = {shape} parameter(0), sharding={text}\n}}\n"
        found[name] = [sharding_of_line(lines_by_name(_answered(oracle, {"do": "parse", "hlo": hlo})["hlo"])["x"])]
    return found


def _answered(oracle: OracleProgram, job: dict[str, Any]) -> dict[str, Any]:
    result = oracle.job(job)
    if not result["ok"]:
        raise ValueError(f"{job}: {result['error']}")
    return result


def _write(name: str, kind: str, answers: dict[str, list[Any]]) -> None:
    """One line for each answer."""
    cases = [
        f"{json.dumps(case)}: [\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in found) + "\n]"
        for case, found in answers.items()
    ]
    head = json.dumps({"jaxlib": version("jaxlib"), "asked": kind})[:-1]
    (RECORDED / f"{name}.json").write_text(f'{head}, "answers": {{\n' + ",\n".join(cases) + "\n}}\n")


def main(topics: Iterable[str]) -> None:
    """Ask live XLA about every case of the topics (all, if none is named) and write its answers."""
    wanted = set(topics)
    oracle = OracleProgram()
    recorded: dict[str, dict[str, Any]] = defaultdict(dict)
    for case in all_cases():
        if not wanted or case.topic in wanted:
            recorded[case.topic][case.name] = record_case(oracle, case)
    for topic, answers in recorded.items():
        _write(topic, "the sharding propagation pass", answers)
    _write("sharding_utilities", "the sharding utilities", record_utilities(oracle))
    _write("sharding_texts", "parser and printer", record_texts(oracle))
    oracle.close()
    # Read only now: the table looks at the tests, which look at the answers.
    from tests.xla_mirror.readme import PATH, readme

    PATH.write_text(readme())


if __name__ == "__main__":
    main(sys.argv[1:])
