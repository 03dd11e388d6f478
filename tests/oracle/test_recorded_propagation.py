"""Our propagation against the answers of live XLA, instruction by instruction: same shardings, same `changed`."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hlosharding.errors import HloShardingError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import ALL_OPCODES, Module
from hlosharding.propagation import Propagation, propagate
from hlosharding.sharding import HloSharding
from tests.oracle import coverage
from tests.oracle.opcode_modules import opcode_module
from tests.oracle.policy_cells import possible_cells

DATA = Path(__file__).parent / "data"


def load(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())["answers"]


def differences(found: Propagation, recorded: dict[str, Any]) -> dict[str, tuple[object, object]]:
    """Name -> (ours, XLA's), where they differ in meaning or in print."""
    different: dict[str, tuple[object, object]] = {}
    texts = {name: recorded["texts"][n] for name, n in recorded["shardings"].items()}
    for name, text in (texts | dict.fromkeys(recorded["none"])).items():
        ours = found.shardings[name]
        printed = None if ours is None else str(ours)
        if printed != text or (text is not None and HloSharding.parse(text) != ours):
            different[name] = (ours, text)
    if found.changed != recorded["changed"]:
        different["changed"] = (found.changed, recorded["changed"])
    return different


def check(hlo: str, recorded: dict[str, Any]) -> None:
    if recorded.get("error") != "aborts":
        module = from_hlo_text(hlo)
        found = propagate(module, **recorded["options"])
        assert differences(found, recorded) == {}, recorded["options"]
        check_cells(module, found, recorded.get("cells", []))
        return
    # XLA dies of this module; we answer, or refuse with a message.
    with suppress(HloShardingError):
        propagate(from_hlo_text(hlo), **recorded["options"])


def check_cells(module: Module, found: Propagation, recorded: list[str]) -> None:
    """Our steps fill the cells that XLA's log fills, and none that the policy cannot."""
    filled = coverage.cells(module, found.provenance.changes)
    assert set(recorded) <= {coverage.name(cell) for cell in filled}
    assert coverage.contradictions(filled, POSSIBLE) == []


POSSIBLE = possible_cells()
OPCODES = load("opcodes")
RANDOM = load("random")


def test_every_opcode_was_recorded() -> None:
    assert set(OPCODES) == set(ALL_OPCODES)


@pytest.mark.parametrize("opcode", sorted(OPCODES))
def test_opcode(opcode: str) -> None:
    for recorded in OPCODES[opcode]:
        check(opcode_module(opcode), recorded)


def test_the_recorded_modules_fill_many_possible_cells() -> None:
    filled = {cell for recorded in RANDOM for cell in recorded["cells"]}
    possible = {coverage.name(cell) for cell in POSSIBLE}
    assert filled <= possible
    assert len(filled) > 0.35 * len(possible)


@pytest.mark.parametrize("recorded", RANDOM, ids=lambda r: f"seed{r['seed']}")
def test_random_module(recorded: dict[str, Any]) -> None:
    check(recorded["hlo"], recorded)
