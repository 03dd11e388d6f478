"""The ways in which we differ from live XLA are few, and each is as its entry says."""

from __future__ import annotations

import os

import pytest

from hlosharding.errors import PropagationError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.propagation import propagate
from tests.oracle.differential import compare
from tests.oracle.known_exceptions import KNOWN, KnownException, explanation
from tests.oracle.oracle_program import OracleProgram


def test_there_are_at_most_ten() -> None:
    assert len(KNOWN) <= 10
    assert all(entry.reason and entry.hlo for entry in KNOWN)


@pytest.mark.parametrize("entry", KNOWN, ids=lambda e: e.name)
def test_ours_is_as_the_entry_says(entry: KnownException) -> None:
    if entry.refused:
        with pytest.raises(PropagationError):
            propagate(from_hlo_text(entry.hlo))
        return
    found = propagate(from_hlo_text(entry.hlo)).shardings
    assert {name: str(found[name]) for name in entry.ours} == entry.ours


if "HLOSHARDING_ORACLE" in os.environ:

    @pytest.mark.parametrize("entry", KNOWN, ids=lambda e: e.name)
    def test_live_xla_is_as_the_entry_says(entry: KnownException) -> None:
        oracle = OracleProgram()
        answer, different, _ = compare(oracle, entry.hlo, {})
        oracle.close()
        assert explanation(answer, different) is entry
        assert {name: answer.shardings[name] for name in entry.theirs} == entry.theirs
