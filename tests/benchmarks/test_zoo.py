"""Every model of the zoo on eight devices computes what one device computes; and the table's words for it."""

from __future__ import annotations

import math

import pytest

from benchmarks import zoo_against_xla
from benchmarks.zoo import MODELS, Model


def test_names_are_unique_and_meshes_have_eight_devices() -> None:
    assert len({m.name for m in MODELS}) == len(MODELS) >= 20
    assert {math.prod(size for _, size in m.axes) for m in MODELS} == {8}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_right(model: Model) -> None:
    assert zoo_against_xla.verdict(model, 1)["right"]


def row(mine: float, its: float, *, right: bool = True) -> zoo_against_xla.Row:
    ours, xla = (dict.fromkeys(zoo_against_xla.QUANTITIES, value) for value in (mine, its))
    return {"name": "m", "ours": ours, "xla": xla, "raw": its, "off": 0.0, "right": right}


def test_a_row_is_kept_within_its_limits_only() -> None:
    assert zoo_against_xla.line(row(1.0, 1.0))[1]
    assert not zoo_against_xla.line(row(1.01, 1.0))[1]
    assert not zoo_against_xla.line(row(1.0, 1.0, right=False))[1]
    assert not zoo_against_xla.line({"name": "m", "figures": "it failed"})[1]


def test_bytes_where_xla_needs_none_are_not_kept() -> None:
    assert zoo_against_xla.rated(0.0, 0.0, 1.0)[1]
    assert not zoo_against_xla.rated(1.0, 0.0, 1.0)[1]
