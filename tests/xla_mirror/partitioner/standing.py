"""What live XLA's programs cost, as recorded, and how ours stand to them."""

from __future__ import annotations

import json
from typing import Any

from tests.xla_mirror.partitioner.cases import FOLDER
from tests.xla_mirror.partitioner.running import Figures

RECORDED = FOLDER / "recorded" / "figures.json"

# Both sides count in halves and eighths of bytes; sums of those differ in the last digits.
SLACK = 1e-6


def recorded() -> dict[str, dict[str, Any]]:
    """Case name -> live XLA's figures."""
    return json.loads(RECORDED.read_text())["answers"] if RECORDED.exists() else {}


def byte_standing(ours: Figures, answer: dict[str, Any]) -> str:
    """`fewer`, `equal` or `more bytes` than XLA's ideal; empty where XLA has no answer."""
    if "ideal" not in answer:
        return ""
    ideal = answer["ideal"]
    if ours.received_bytes > ideal * (1 + SLACK) + SLACK:
        return "more bytes"
    return "fewer bytes" if ours.received_bytes < ideal * (1 - SLACK) - SLACK else "equal bytes"
