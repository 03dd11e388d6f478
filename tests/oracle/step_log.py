"""What live XLA's pass did step by step, read from its own log: level, direction, instruction and new sharding.

`LoggedOracle` is an `OracleProgram` whose process logs; `agreed` keeps those of our steps that XLA's log has as well.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from typing import IO

from hlosharding.ir import Module
from hlosharding.propagation import Change, Propagation
from tests.oracle.oracle_program import OracleProgram, one_spelling
from tests.xla_mirror.record import sharding_of_line

_ADDED = re.compile(r"\] (?:Add|Refined partial) sharding \((forward|backward)-pass\): (?:ROOT )?%?([\w.\-]+) = (.*)")
_LEVEL = re.compile(r"^  aggressiveness: (\d)")
_DIRECTIONS = {"forward": "operands", "backward": "users"}
LogStep = tuple[int, str, str | None]
"""Level, instruction, new sharding with its metadata."""


class LoggedOracle(OracleProgram):
    """The oracle program with XLA's log of the pass switched on."""

    def __init__(self, path: str | None = None) -> None:
        super().__init__(path)
        self._log: IO[bytes] | None = None
        self._read = 0

    def _start(self) -> subprocess.Popen[bytes]:
        self._log, self._read = tempfile.TemporaryFile(), 0  # noqa: SIM115 - it lives as long as the process
        return self._open({"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "sharding_propagation=2"}, self._log)

    def steps(self) -> Counter[LogStep]:
        """The steps of the last answer."""
        if self._log is None:
            return Counter()
        self._log.seek(self._read)
        text = self._log.read()
        self._read += len(text)
        return _steps(one_spelling(text.decode("utf-8", "replace")))


def _steps(text: str) -> Counter[LogStep]:
    found: Counter[LogStep] = Counter()
    pending: list[tuple[str, str | None]] = []
    for line in text.splitlines():
        if added := _ADDED.search(line):
            pending.append((f"{_DIRECTIONS[added[1]]} {added[2]}", sharding_of_line(f"%{added[2]} = {added[3]}")))
        elif level := _LEVEL.match(line):
            found.update((int(level[1]), *step) for step in pending)
            pending = []
    return found


def agreed(module: Module, found: Propagation, logged: Counter[LogStep], renamed: Mapping[str, str]) -> list[Change]:
    """Our steps that XLA logged too: the same level, direction, instruction and new sharding, as often."""
    left, names = Counter(logged), [i.name for i in module.instructions]
    kept: list[Change] = []
    for step in found.provenance.changes:
        if step.direction not in _DIRECTIONS.values() or step.level < 0 or step.instruction >= len(names):
            continue
        name = names[step.instruction]
        printed = None if step.new is None else step.new.to_string(metadata=True)
        key = (step.level, f"{step.direction} {renamed.get(name, name)}", printed)
        if left[key]:
            left[key] -= 1
            kept.append(step)
    return kept
