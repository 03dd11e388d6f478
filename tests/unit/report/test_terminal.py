"""On terminals of every width numbers and words stay whole, and nothing is lost but what a line says is left out."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import hlosharding as hs
from examples.models import gpt2
from hlosharding.report import (
    Column,
    Facts,
    Kind,
    Table,
    Text,
    Tree,
    View,
    Within,
    comparison_view,
    conflicts_view,
    cost_view,
    explanations_view,
    overrides_view,
    parameters_view,
    partitioned_view,
    propagation_view,
    reshard_view,
    show,
    simulation_view,
    suggestions_view,
    to_text,
    trace_view,
)
from hlosharding.report.plain import facts_table, plain
from tests.support.shown_programs import MESH

DOCS = Path(__file__).resolve().parents[3] / "docs"
WIDTHS = (40, 60, 80, 120, 170)
NAMES = (
    "propagation",
    "parameters",
    "conflicts",
    "explanations",
    "trace",
    "partitioned",
    "overrides",
    "cost",
    "simulation",
    "comparison",
    "reshard",
    "suggestions",
)
FRAME = str.maketrans(dict.fromkeys("┏┓┗┛┃┡┩╇┳━│└┘┴┼├┤─", " "))


@functools.cache
def partitioned(program: str) -> hs.Partitioned:
    count = 4 if program == "clash" else 8
    return hs.partition(propagated(program), machine=hs.machines.h100(count), num_partitions=count)


def propagated(program: str) -> hs.Propagation:
    if program == "clash":
        return hs.propagate(hs.load(DOCS / "clash.hlo"))
    if program == "mlp":
        return hs.propagate(hs.annotate(hs.load(DOCS / "mlp.hlo"), {}, mesh=MESH), to_outputs=True)
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    config = gpt2.Config(layers=1, width=64, heads=4, vocabulary=256, context=16, batch=8)
    step = hs.jit(gpt2.training_step(mesh), mesh=mesh).trace(*gpt2.abstract_arguments(config))
    return step.propagate().propagation


@functools.cache
def view(name: str, program: str) -> View:
    local = partitioned(program)
    found = local.propagation
    assert found is not None
    match name:
        case "propagation":
            return propagation_view(found)
        case "parameters":
            return parameters_view(found)
        case "conflicts":
            return conflicts_view(found.conflicts)
        case "explanations":
            names = [inst.name for inst in found.module.entry.instructions[:12]]
            return explanations_view([found.explain(name) for name in names])
        case "trace":
            return trace_view(found)
        case "partitioned":
            return partitioned_view(local)
        case "overrides":
            return overrides_view(local)
        case "cost":
            return cost_view(local.cost)
        case "simulation":
            return simulation_view(hs.simulate(local, local.machine))
        case "comparison":
            return comparison_view(local.cost, local.cost)
        case "reshard":
            rows, columns = map(hs.HloSharding.parse, ("{devices=[16,1]<=[16]}", "{devices=[1,16]<=[16]}"))
            return reshard_view(hs.plan_reshard((1024, 4096), "float32", rows, columns))
        case _:
            clash = hs.load(DOCS / "clash.hlo")
            return suggestions_view(hs.suggest(clash, "free", machine=hs.machines.h100(4)))


def shown_tables(shown: View) -> Iterator[Table]:
    for part in shown.parts:
        match part:
            case Table() if part.is_shown and not part.line:
                yield part
            case Facts() if part.labels:
                yield facts_table(part)
            case Within() if part.is_shown:
                yield from shown_tables(part.view)
            case _:
                pass


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("program", ["gpt2", "mlp", "clash"])
@pytest.mark.parametrize("name", NAMES)
def test_every_number_and_word_stays_whole(name: str, program: str, width: int) -> None:
    for table in shown_tables(view(name, program)):
        text = to_text(View((table,)), width=width)
        assert_tables_words_are_whole(table, text)
        assert_lines_fit(text, width)
    lines = View(tuple(p for p in view(name, program).parts if isinstance(p, Text | Tree) or getattr(p, "line", "")))
    text = to_text(lines, width=width)
    assert_lines_fit(text, width)
    assert text.split() == to_text(lines, width=100_000).split()


def assert_tables_words_are_whole(table: Table, text: str) -> None:
    _, _, left_out = text.partition("left out for lack of room:")
    gone = {heading.strip() for heading in " ".join(left_out.split()).split(",")} - {""}
    found = plain(table)
    kept = [n for n, column in enumerate(found.columns) if column.heading not in gone]
    assert len(found.columns) - len(kept) == len(gone)
    asked = Counter(word for row in found.rows for n in kept for word in row[n].split())
    assert asked - Counter(text.translate(FRAME).split()) == Counter()


def assert_lines_fit(text: str, width: int) -> None:
    """Longer than the terminal is only a line of one long word, which may stand behind its indent and heading."""
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) <= 2, line


@pytest.mark.parametrize("width", WIDTHS)
def test_a_number_and_its_unit_share_a_line(width: int) -> None:
    text = to_text(view("partitioned", "mlp"), width=width)
    assert all(figure in text for figure in ("24.6 kB", "22.9 us", "28.3 us", "80.0 GB"))


FIGURES = Table(
    title="Cost",
    columns=(
        Column(key="name", heading="name"),
        Column(key="flops", heading="FLOPs", kind=Kind.COUNT, priority=1),
        Column(key="why", heading="why", kind=Kind.PROSE),
    ),
    rows=[{"name": "all-reduce", "flops": 123456789, "why": "partial sums of a dot"}],
)


def test_cells_fold_first_then_columns_go_then_rows_fold() -> None:
    narrow = to_text(View((FIGURES,)), width=40)
    assert "123,456,789" in narrow
    assert "left out" not in narrow
    narrower = to_text(View((FIGURES,)), width=30)
    assert "123,456,789" not in narrower
    assert narrower.endswith("left out for lack of room:\n  FLOPs")
    assert to_text(View((FIGURES,)), width=20).splitlines() == [
        "Cost",
        "",
        "name: all-reduce",
        "  FLOPs: 123,456,789",
        "  why: partial sums",
        "      of a dot",
    ]


def test_drawings_take_several_grids_where_one_is_too_wide() -> None:
    sharding = hs.HloSharding.parse("{devices=[1,4]<=[4]}")
    assert hs.draw(sharding, (4, 4), width=20).split("\n\n") == [
        "     0:1  1:2  2:3\n0:4    0    1    2",
        "     3:4\n0:4    3",
    ]


def test_in_a_file_a_line_stays_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show(View((Text("one line that is longer than forty columns of a terminal"), FIGURES)))
    first, *table = capsys.readouterr().out.splitlines()
    assert first == "one line that is longer than forty columns of a terminal"
    assert max(map(len, table)) <= 40
