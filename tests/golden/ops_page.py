"""docs/ops.md: every opcode with a link to each of its rows.  What a table does not name is said by its default."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hlosharding.cost.work import CONTROL, FREE, SPECIAL
from hlosharding.executor import catalog as _emitters_are_filled  # noqa: F401  (its import fills EMITTERS)
from hlosharding.executor.emit import EMITTERS, REFUSED
from hlosharding.executor.flow import NO_LINES
from hlosharding.ir import ALL_OPCODES, ELEMENTWISE
from hlosharding.ir.shape_inference import SHAPE_RULES
from hlosharding.ir.shape_laws import CHECKS
from hlosharding.partitioner.local_ops.local_op import emit_same_op
from hlosharding.partitioner.local_ops.local_rules import local_rule
from hlosharding.partitioner.partial_sums.partial_sum_ops import DEFERRAL_RULES
from hlosharding.partitioner.strategies import STRATEGIES
from hlosharding.propagation import policy
from hlosharding.propagation.handlers import BACKWARD, FORWARD
from hlosharding.rules import DataFlow, Opaque
from hlosharding.rules.catalog import catalog

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ops.md"
HEAD = """# Every op, and where its facts stand

Made by `make golden` from the tables themselves. Three columns are decisions: *rule* (what is true of its dims),
*policy* (when a split travels) and *strategy* (how it is partitioned). The others are rows of plain tables; a word
without a link is the default of the table. [ARCHITECTURE.md](../ARCHITECTURE.md) says what the rooms are.

| opcode | shape law | rule | policy | strategy | local computation | deferred reduction | emission | work |
|---|---|---|---|---|---|---|---|---|
"""


def link(function: Callable[..., Any]) -> str:
    """A function's name, linked to its file."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    path = Path(inspect.getsourcefile(function) or "")
    name = function.__name__.strip("_")
    shown = f"`{path.stem}`" if name == "<lambda>" else f"`{name}`"
    return f"[{shown}]({os.path.relpath(path, PAGE.parent)})"


def shape_law(opcode: str) -> str:
    """Built and checked by one law; or only checked."""
    law = SHAPE_RULES.get(opcode) or CHECKS.get(opcode)
    return link(law) if law is not None else "stated"


def rule(opcode: str) -> str:
    """A rule, a kind of data flow, or opaque."""
    row = catalog[opcode]
    if isinstance(row, DataFlow):
        return "data flow"
    return "opaque" if isinstance(row, Opaque) else link(row.rule)


def when(opcode: str) -> str:
    """From which level a split passes, and who departs from the generic inference."""
    handlers = [link(table[opcode]) for table in (FORWARD, BACKWARD) if opcode in table]
    level = policy.through_level(opcode, opcode in ELEMENTWISE, "")
    return ", ".join([f"level {level}", *dict.fromkeys(handlers)])


def strategy(opcode: str) -> str:
    """Its own, by its factors, or whole."""
    if opcode in STRATEGIES:
        return link(STRATEGIES[opcode].lower)
    return "whole" if isinstance(catalog[opcode], DataFlow | Opaque) else "by its factors"


def local_computation(opcode: str) -> str:
    """What a device computes of it."""
    row = local_rule(opcode)
    return "the op itself" if row.emit is emit_same_op else link(row.emit)


def deferred(opcode: str) -> str:
    """How partial sums pass through."""
    row = DEFERRAL_RULES.get(opcode)
    passes = "reduced before" if row is None or row.on_partial_sums is None else link(row.on_partial_sums)
    return f"{passes}; may make some" if row is not None and row.makes_partial_sums else passes


def emission(opcode: str) -> str:
    """Its Python; or that no program we run may hold it."""
    if opcode in EMITTERS:
        return link(EMITTERS[opcode])
    return "no line of its own" if opcode in NO_LINES else "refused" if opcode in REFUSED else ""


def work(opcode: str) -> str:
    """Its FLOPs and bytes."""
    if opcode in SPECIAL:
        return link(SPECIAL[opcode])
    return "nothing" if opcode in FREE else "its parts" if opcode in CONTROL else "one per element"


COLUMNS = (shape_law, rule, when, strategy, local_computation, deferred, emission, work)


def rows() -> dict[str, list[str]]:
    """By opcode the cells behind it."""
    return {opcode: [column(opcode) for column in COLUMNS] for opcode in sorted(ALL_OPCODES)}


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"| `{opcode}` | {' | '.join(cells)} |\n" for opcode, cells in rows().items())
