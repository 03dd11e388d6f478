"""The written module of an opcode (`opcode_modules`), with random shardings on its values instead of the written ones.

So that every opcode of HLO meets every kind of sharding, the ones that no random module has a writer for as well.
"""

from __future__ import annotations

import random
import re

from tests.oracle.opcode_modules import BODIES, REGIONS
from tests.oracle.random_modules import ModuleWriter

_GIVEN = re.compile(r", sharding=(\{\{.*\}\}|\{[^{}]*\})")
_ARRAY = re.compile(r"^\s*(?:ROOT )?%\S+ = \w+\[([\d,]*)\](?:\{[\d,]*\})? [\w-]+\(")


def random_opcode_module(opcode: str, seed: int, *, unreduced: bool = False) -> str:
    """That opcode's module under the shardings of that seed."""
    writer = ModuleWriter(seed, unreduced=unreduced)
    writer.devices = 4  # the collectives' groups name four
    density = writer.random.choice((0.2, 0.5))
    body = "\n".join(_sharded(line, writer, density) for line in BODIES[opcode].splitlines())
    return f"HloModule {opcode.replace('-', '_')}\n{REGIONS}\nENTRY %main {{\n{body}\n}}\n"


def _sharded(line: str, writer: ModuleWriter, density: float) -> str:
    bare = _GIVEN.sub("", line)
    found = _ARRAY.match(bare)
    if not found or bare.lstrip().startswith("ROOT") or writer.random.random() > density:
        return bare if found else line
    dims = tuple(int(d) for d in found.group(1).split(",") if d)
    return f"{bare}, sharding={writer.sharding(dims)}"


def any_opcode(seed: int) -> str:
    """An opcode drawn by the seed."""
    return random.Random(seed).choice(sorted(BODIES))
