"""What live XLA's programs cost, as recorded, and how ours stand to them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hlosharding.errors import HloShardingError
from tests.properties.program_check import WrongResult
from tests.xla_mirror.partitioner.cases import FOLDER, Case
from tests.xla_mirror.partitioner.running import Figures, check, figures, partitioned

RECORDED = FOLDER / "recorded" / "figures.json"

# Both sides count in halves and eighths of bytes; sums of those differ in the last digits.
SLACK = 1e-6


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
    more = moves_more(ours, answer)
    behind = f"{ours.received_bytes:g} bytes, XLA {answer['ideal']:g}" if more else ""
    return Standing("more bytes" if more else "", behind, ours)


def moves_more(ours: Figures, answer: dict[str, Any]) -> bool:
    """Are these more bytes than XLA's ideal?  No, where XLA has no program."""
    return "ideal" in answer and ours.received_bytes > answer["ideal"] * (1 + SLACK) + SLACK
