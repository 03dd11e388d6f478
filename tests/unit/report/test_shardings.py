"""The tables of shardings, and how a sharding is spelled."""

from __future__ import annotations

import jax
import pytest

import hlosharding as hs
from hlosharding.report import parameters_view, propagation_view
from hlosharding.sharding import HloSharding, spell
from tests.support.shown_programs import MESH, propagated, rows_of


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("{replicated}", "P()"),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "P('data', None)"),
        ("{devices=[8,1]<=[8]}", "P(('data', 'model'), None)"),
        ("{devices=[1,2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}",) * 2,  # half of an axis
        ("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", "P('data', unreduced={'model'})"),
        ("{manual}", "{manual}"),
        ("{maximal device=3}", "{maximal device=3}"),
        ("{{devices=[2,1,4]<=[8] last_tile_dim_replicate}, {replicated}}", "(P('data', None), P())"),
    ],
)
def test_a_sharding_is_spelled_with_axes_where_they_can_say_it(text: str, spelled: str) -> None:
    assert spell(HloSharding.parse(text), MESH) == spelled


def test_a_jax_mesh_will_do(mesh_2x4: jax.sharding.Mesh) -> None:
    found = HloSharding.parse("{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    assert spell(found, mesh_2x4) == "P('data', None)"


def test_layers_and_moments_share_a_row() -> None:
    rows = rows_of(parameters_view(propagated(mesh=True)))
    assert rows[1:] == [
        ["params['block'][*]['w']", "f32[64,128]", "P('data', None)", "3"],
        ["[/w]", "f32[128,16]", "P(None, ('data', 'model'))", "1"],
    ]


def test_every_value_is_listed_in_order() -> None:
    rows = rows_of(propagation_view(propagated()))[1:]
    assert [row[0] for row in rows] == ["%x", "%y", "%m", "%w", "%total", "%shifted", "ROOT %out"]
    assert rows[4][3] == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"


def test_reducers_are_left_out_and_long_tuples_counted() -> None:
    arrays = ", ".join(["f32[8]"] * 5)
    text = f"""HloModule m
    add {{
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT sum = f32[] add(a, b)
    }}
    ENTRY e {{
      x = f32[8] parameter(0), sharding={{devices=[8]<=[8]}}
      zero = f32[] constant(0)
      total = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add
      ROOT out = ({arrays}) tuple(x, x, x, x, x)
    }}"""
    rows = rows_of(propagation_view(hs.propagate(hs.load(text), to_outputs=True)))[1:]
    assert [row[0] for row in rows] == ["%x", "%zero", "%total", "ROOT %out"]
    assert rows[-1][2:4] == ["tuple of 5 arrays", "5 x {devices=[8]<=[8]}"]
