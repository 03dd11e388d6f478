"""The table of collectives against figures by hand: 400 bytes in groups of 4, a permute for 2 of 8 devices."""

from __future__ import annotations

import hlosharding as hs
from hlosharding import report
from tests.support.shown_programs import local_module, rows_of


def test_equal_collectives_share_a_row_largest_volume_first() -> None:
    rows = rows_of(report.collectives_view(local_module()))
    assert rows == [
        ["kind", "axes", "shape", "bytes a device", "times", "source", "cause"],
        ["all-gather", "1 group of 8", "f32[800]", "2,800", "1", "", ""],  # 7/8 of 3200
        [
            "all-reduce",
            "2 groups of 4",
            "f32[100]",
            "1,200",
            "2",
            "m.py:3",
            "add of partial results for dot",
        ],  # 2*3/4*400
        ["collective-permute", "2 pairs", "f32[100]", "100", "1", "", ""],  # 2 of 8 devices receive 400
        ["all", "", "", "4,100", "4", "", ""],
    ]


def test_a_mesh_names_the_axes() -> None:
    rows = rows_of(report.collectives_view(local_module(mesh=True)))
    assert [row[1] for row in rows[1:3]] == ["data,model", "model"]


def test_prices_stand_there_where_a_cost_is_known() -> None:
    module = local_module()
    rows = rows_of(report.collectives_view(module, cost=hs.cost(module, machine=hs.machines.h100(8))))
    assert rows[0][5] == "priced"
    assert all(row[5].endswith("us") for row in rows[1:])


def test_a_guessed_trip_count_is_marked() -> None:
    loop = """HloModule loop, num_partitions=2
    body {
      s = (pred[], f32[8]) parameter(0)
      p = pred[] get-tuple-element(s), index=0
      v = f32[8] get-tuple-element(s), index=1
      moved = f32[8] collective-permute(v), channel_id=1, source_target_pairs={{0,1},{1,0}}
      ROOT out = (pred[], f32[8]) tuple(p, moved)
    }
    goes_on {
      s = (pred[], f32[8]) parameter(0)
      ROOT p = pred[] get-tuple-element(s), index=0
    }
    ENTRY main {
      s = (pred[], f32[8]) parameter(0)
      ROOT out = (pred[], f32[8]) while(s), condition=goes_on, body=body
    }"""
    rows = rows_of(report.collectives_view(hs.load(loop)))
    assert rows[1][3].startswith("~")
    assert rows[-1][3].startswith("~")


def test_a_program_without_collectives_has_an_empty_sum() -> None:
    assert rows_of(report.collectives_view([]))[1:] == [["all", "", "", "0", "0", "", ""]]
