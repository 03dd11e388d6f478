"""What live XLA's programs cost, as recorded, and how ours stand to them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import HloShardingError
from tests.support.program_check import WrongResult
from tests.xla_mirror.partitioner.cases import FOLDER, Case
from tests.xla_mirror.partitioner.running import Figures, check, figures, partitioned

RECORDED = FOLDER / "recorded" / "figures.json"

# Both sides count in halves and eighths of bytes; sums of those differ in the last digits.
SLACK = 1e-6

PRODUCTS = ("dot", "einsum")
"""Topics whose cases are partitioned into loops of permutes, too."""

# Work that fewer bytes may cost.
EXTRA_WORK = 1.05


def recorded() -> dict[str, dict[str, Any]]:
    """Case name -> live XLA's figures."""
    return json.loads(RECORDED.read_text())["answers"] if RECORDED.exists() else {}


@dataclass(frozen=True)
class Standing:
    """`known`: what is not as it should be (empty if nothing); the words or figures behind it."""

    known: str
    behind: str = ""
    ours: Figures | None = None


def standing(case: Case, answer: dict[str, Any]) -> Standing:
    """Partition, run and compare one case."""
    try:
        local = partitioned(case)
        if not case.unrun:
            check(case, local)
    except WrongResult as wrong:
        return Standing("wrong result", str(wrong))
    except HloShardingError as refused:
        if "error" in answer:
            return Standing("", str(refused))
        return Standing(f"refused: {type(refused).__name__}", str(refused))
    ours = figures(local.module)
    if "error" in answer:
        return Standing("accepted", "XLA refuses it", ours)
    if moves_more(ours, answer) and not case.exempt:
        return Standing("more bytes", f"{ours.received_bytes:g} bytes, XLA {answer['ideal']:g}", ours)
    if computes_more(ours, answer):
        return Standing("more FLOPs", f"{ours.flops:g} FLOPs, XLA {answer['flops']:g}", ours)
    exempted = f"{ours.received_bytes:g} bytes, XLA {answer['ideal']:g}; {case.exempt}" if case.exempt else ""
    return Standing("", exempted, ours)


def rings(case: Case, answer: dict[str, Any]) -> int:
    """How many loops of permutes the case becomes on demand: as right as without, with no more bytes than XLA."""
    local = partitioned(case, overlap="always")
    found = sum(i.opcode == "while" for i in local.module.instructions)
    if found:
        check(case, local)
        ours = figures(local.module)
        if moves_more(ours, answer) and not moves_more(figures(partitioned(case).module), answer):
            raise WrongResult(f"{case.name}: {ours.received_bytes:g} bytes in a loop, XLA {answer['ideal']:g}")
    return found


def moves_more(ours: Figures, answer: dict[str, Any]) -> bool:
    """Are these more bytes than XLA's ideal?  No, where XLA has no program."""
    return "ideal" in answer and ours.received_bytes > answer["ideal"] * (1 + SLACK) + SLACK


def computes_more(ours: Figures, answer: dict[str, Any]) -> bool:
    """Is this clearly more arithmetic than XLA's?"""
    return "flops" in answer and ours.flops > answer["flops"] * EXTRA_WORK + SLACK
