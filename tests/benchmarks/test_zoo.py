"""Every model of the zoo on eight devices computes what one device computes; and the table's words for it."""

from __future__ import annotations

import math

import pytest

from benchmarks import zoo_against_xla
from benchmarks.zoo import MODELS, Model


def test_names_are_unique_and_meshes_have_eight_devices() -> None:
    assert len({m.name for m in MODELS}) == len(MODELS) >= 20
    assert {math.prod(size for _, size in m.axes) for m in MODELS} == {8}


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_right(model: Model) -> None:
    assert zoo_against_xla.verdict(model, 1)["right"]


def row(mine: float, its: float, *, right: bool = True, shardys: float | None = None) -> zoo_against_xla.Row:
    shardys = its if shardys is None else shardys
    ours, gspmd, shardy = (dict.fromkeys((*zoo_against_xla.QUANTITIES, "raw"), value) for value in (mine, its, shardys))
    return {"name": "m", "ours": ours, "GSPMD": gspmd, "Shardy": shardy, "off": 0.0, "right": right}


def test_a_row_is_kept_within_its_limits_only() -> None:
    assert zoo_against_xla.line(row(1.0, 1.0))[1]
    assert not zoo_against_xla.line(row(1.01, 1.0))[1]
    assert not zoo_against_xla.line(row(1.0, 1.0, right=False))[1]
    assert not zoo_against_xla.line(row(1.0, 2.0, shardys=0.9))[1]
    assert not zoo_against_xla.line(row(1.0, 0.9, shardys=2.0))[1]
    assert not zoo_against_xla.line({"name": "m", "figures": "it failed"})[1]


def test_bytes_where_xla_needs_none_are_not_kept() -> None:
    assert zoo_against_xla.rated(0.0, 0.0, 1.0)[1]
    assert not zoo_against_xla.rated(1.0, 0.0, 1.0)[1]


def test_sums_are_compared_with_the_better_of_each_model() -> None:
    rows = [row(0.5, 1.0, shardys=2.0), row(0.5, 2.0, shardys=1.0)]
    cells, kept = zoo_against_xla.totals(rows)
    assert cells[:4] == ["1", "3", "3", "2"]
    assert "0.500" in cells[5]
    assert kept
    assert not zoo_against_xla.totals([row(0.6, 1.0)])[1]
