"""Readers of strangers' files: what they once could not stand, and some inputs more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import content, kept
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_valid_is_read(name: str) -> None:
    assert [TARGETS[name].failure(seed) for seed in TARGETS[name].seeds] == [None] * len(TARGETS[name].seeds)


@pytest.mark.parametrize(
    ("name", "path"), list(kept()), ids=lambda value: value.name if isinstance(value, Path) else value
)
def test_what_a_reader_could_not_stand(name: str, path: Path) -> None:
    assert TARGETS[name].failure(content(path)) is None


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=100)
@given(random=st.randoms(use_true_random=False))
def test_nearly_valid_inputs(name: str, random: Random) -> None:
    data = mutated(TARGETS[name], random)
    assert TARGETS[name].failure(data) is None, data
