"""The table of collectives against figures by hand: 400 bytes in groups of 4, a permute for 2 of 8 devices."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions
from hlosharding.report import collectives_view, cost_view, partitioned_view, simulation_view, to_record, to_text
from tests.support.shown_programs import local_module, rows_of


def test_equal_collectives_share_a_row_largest_volume_first() -> None:
    rows = rows_of(collectives_view(local_module()))
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
    rows = rows_of(collectives_view(local_module(mesh=True)))
    assert [row[1] for row in rows[1:3]] == ["data,model", "model"]


def test_prices_stand_there_where_a_cost_is_known() -> None:
    module = local_module()
    rows = rows_of(collectives_view(module, cost=hs.cost(module, machine=hs.machines.h100(8))))
    assert rows[0][5] == "priced"
    assert all(row[5].endswith("us") for row in rows[1:])


GUESSED = """HloModule loop, num_partitions=2
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
  ROOT loop = (pred[], f32[8]) while(s), condition=goes_on, body=body
}"""


def test_a_guessed_trip_count_is_marked() -> None:
    rows = rows_of(collectives_view(hs.load(GUESSED)))
    assert rows[1][3].startswith("~")
    assert rows[-1][3].startswith("~")


def marks(partitioned: hs.Partitioned) -> list[bool]:
    """Does each output say that a figure is a guess?"""
    record = to_record(partitioned_view(partitioned))
    simulation = hs.simulate(partitioned, hs.machines.h100(2))
    return [
        "~" in repr(partitioned),
        any("how often" in warning for warning in partitioned.warnings),
        "~" in str(partitioned.collectives[0]),
        "~" in str(partitioned.cost) and "how often %loop" in str(partitioned.cost),
        "~" in to_text(cost_view(partitioned.cost)),
        bool(record["cost"]["guessed_loops"]),
        "~" in str(simulation),
        "~" in to_text(simulation_view(simulation)),
        not to_record(simulation_view(simulation))["timeline"][0]["is_exact"],
    ]


def test_every_output_marks_a_guess_until_trips_are_stated() -> None:
    module = hs.load(GUESSED)
    assert all(marks(hs.partition(module)))
    stated = hs.partition(module, options=PartitionOptions(trips={"loop": 3}))
    assert not any(marks(stated))
    assert stated.collectives[0].executions == 3
    assert hs.cost(module, trips={"loop": 3}).comm_bytes == 3 * hs.cost(module).comm_bytes / 100
    assert hs.simulate(module, trips={"loop": 3}).timeline[0].trips == 3


def test_a_program_without_collectives_has_an_empty_sum() -> None:
    assert rows_of(collectives_view([]))[1:] == [["all", "", "", "0", "0", "", ""]]


@pytest.mark.parametrize(("file", "is_grid"), [("model.py", True), ("a_long_name_of_a_file.py", False)])
def test_80_columns_keep_price_and_times(file: str, is_grid: bool) -> None:
    text = f"""HloModule m, num_partitions=4
    ENTRY e {{
      a = f32[1024,2048] parameter(0), sharding={{devices=[1,4]<=[4]}}
      b = f32[2048,1024] parameter(1), sharding={{devices=[4,1]<=[4]}}
      ROOT p = f32[1024,1024] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
        sharding={{replicated}}, metadata={{source_file="{file}" source_line=3}}
    }}"""
    local = hs.partition(hs.load(text), machine=hs.machines.h100(4))
    said = to_text(collectives_view(local, cost=local.cost), width=80)
    assert max(map(len, said.splitlines())) <= 80
    assert ("┃" in said) is is_grid  # else a line for each figure
    assert all(word in said for word in ("times", "priced", " us"))
