"""Our sharding algebra gives, spelling included, what live XLA's utilities answered when they were asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.sharding_cases import OURS

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "sharding_utils.json").read_text())


@pytest.mark.parametrize("name", OURS)
def test_as_live_xla_answered(name: str) -> None:
    asked = 0
    for function, args, live in RECORDED["answers"]:
        if function == name:
            asked += 1
            mine = OURS[name](*args)
            assert (list(mine) if isinstance(mine, tuple) else mine) == live, f"{name}{tuple(args)}"
    assert asked >= 50
