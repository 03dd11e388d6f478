"""Ask the live XLA pass, through the oracle program that HLOSHARDING_ORACLE names; development only.

The program speaks JSON lines (`serve`).  XLA aborts on some modules: the program is then started anew, and the answer
says so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import IO, Any

from hlosharding.sharding import HloSharding

_LINE = re.compile(r"^\s*(?:ROOT\s+)?%?([\w.\-]+)\s*=\s*(.*)$")
_OPERAND = re.compile(r"%([\w.\-]+)")
_UNREDUCED = re.compile(r"\{devices=[^{}]* last_tile_dims=\{[^{}]*unreduced[^{}]*\}(?:[^{}]|\{[^{}]*\})*\}")


@dataclass
class Answer:
    """What XLA said: shardings by the names of the module that was asked about, or an error."""

    shardings: dict[str, str | None] = field(default_factory=dict)
    changed: bool = False
    error: str | None = None
    crashed: bool = False
    hlo: str = ""
    """The module as XLA left it, as text."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Instruction -> its name in XLA's module, where XLA put a copy in its place."""


class OracleProgram:
    """A running oracle; `ask` may be called any number of times."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.environ["HLOSHARDING_ORACLE"]
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        return self._open({"TF_CPP_MIN_LOG_LEVEL": "2"}, subprocess.DEVNULL)

    def _open(self, settings: dict[str, str], errors: int | IO[bytes]) -> subprocess.Popen[bytes]:
        env = {**os.environ, "JAX_PLATFORMS": "cpu", **settings}
        command = [sys.executable, self.path, "serve"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env)

    def job(self, job: dict[str, Any]) -> dict[str, Any]:
        """One request as the oracle program takes it."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        process = self._process
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if line:
            return json.loads(line)
        process.wait()
        self._process = None
        return {"ok": False, "crash": True, "error": f"XLA died with code {process.returncode}"}

    def ask(self, hlo: str, **options: Any) -> Answer:
        """Run the bare pass on HLO text."""
        asked = {"do": "propagate", "hlo": one_spelling(hlo), "backend": "direct"}
        result = self.job({**asked, "options": oracle_options(**options)})
        if not result["ok"]:
            return Answer(error=result["error"], crashed=bool(result.get("crash")))
        shardings = {name: s and one_spelling(s) for name, s in result["shardings"].items()}
        text = one_spelling(result["hlo"])
        shardings = by_original_name(hlo, text, shardings)
        return Answer(shardings, result["changed"], hlo=text, renamed=renamed_copies(hlo, text))

    def close(self) -> None:
        """End the program."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def one_spelling(text: str) -> str:
    """Text in which a leaf that is nothing but unreduced is `{unreduced}`, as in every module that comes as a proto.

    XLA's text reader leaves it as tiles of one subgroup where groups of one device stand beside it: the same.

    >>> one_spelling("sharding={devices=[1,2,1]1,0 last_tile_dims={unreduced, replicated}}")
    'sharding={unreduced}'
    """
    return _UNREDUCED.sub(_once, text) if "unreduced" in text else text


def _once(leaf: re.Match[str]) -> str:
    again = HloSharding.parse(HloSharding.parse(leaf[0]).to_string(metadata=True))
    return again.to_string(metadata=True) if again.kind == "unreduced" else leaf[0]


def oracle_options(
    *,
    is_spmd: bool = True,
    propagate_metadata: bool = False,
    to_outputs: bool | list[bool] = False,
    to_parameters: bool | list[bool] = False,
    cse_prevention_only: bool = False,
) -> dict[str, Any]:
    """`hs.propagate`'s options under the oracle's names."""
    return {
        "is_spmd": is_spmd,
        "propagate_metadata": propagate_metadata,
        "allow_output": [to_outputs] if isinstance(to_outputs, bool) else to_outputs,
        "allow_params": [to_parameters] if isinstance(to_parameters, bool) else to_parameters,
        "cse_prevention_only": cse_prevention_only,
    }


def _operands(text: str) -> dict[str, tuple[str, list[str]]]:
    """Instruction name -> (the rest of its line, operand names), from printed HLO."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match and "(" in match.group(2) and not line.rstrip().endswith("{"):
            rest = match.group(2)
            inside = re.search(r"[a-z\-]+\((.*?)\)(,|$|\s)", re.sub(r"^\([^=]*?\)\s", "", rest))
            names = _OPERAND.findall(inside.group(1)) if inside else []
            found[match.group(1)] = (rest, names)
    return found


def _becomes_copy(line: str) -> bool:
    return 'custom_call_target="Sharding"' in line and "sharding={unknown" not in line


def renamed_copies(asked: str, answered: str) -> dict[str, str]:
    """`Sharding` call -> the name of the copy that XLA put in its place, by what reads it."""
    before, after = _operands(asked), _operands(answered)
    renamed: dict[str, str] = {}
    for name, (_, operands) in before.items():
        if name not in after or len(after[name][1]) != len(operands):
            continue
        pairs = zip(operands, after[name][1], strict=True)
        renamed |= {
            old: new
            for old, new in pairs
            if old != new and old not in after and _becomes_copy(before.get(old, ("",))[0])
        }
    return renamed


def by_original_name(asked: str, answered: str, shardings: dict[str, str | None]) -> dict[str, str | None]:
    """XLA's shardings under the names of the module that was asked about."""
    before, renamed = _operands(asked), renamed_copies(asked, answered)
    result = {name: sharding for name, sharding in shardings.items() if name in before}
    return result | {old: shardings[new] for old, new in renamed.items() if new in shardings}
