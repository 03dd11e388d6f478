"""Recorded figures: what is worse fails and is named, what is better passes and is said; figures are told by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.plans import Golden, golden_path, judge_growth, replicated_values

PLAN = 'machine = "h100:4"\n[mesh]\nd = 4\n[annotations]\nx = "P(d)"\ny = "P(d)"\n'
STEP = """HloModule m, num_partitions=4
ENTRY e {{
  x = f32[1024,512] parameter(0)
  w = f32[512,1024] parameter(1), metadata={{op_name="params['w']"}}
  y = f32[1024,1024] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {place}
  ROOT z = f32[1024,1024] negate(y), sharding={{{root}}}, metadata={{source_file="/home/me/m.py" source_line=8}}
}}"""
ROWS = "devices=[4,1]<=[4]"


def step(root: str = ROWS, line: int = 7) -> hs.Module:
    place = f'metadata={{source_file="/home/me/m.py" source_line={line}}}'
    return hs.load(STEP.format(root=root, place=place))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def test_what_is_recorded(plan: Path) -> None:
    verdict = hs.check_plan(plan, step("replicated"), update=True)
    assert str(verdict) == "as recorded"
    golden = Golden.read(golden_path(plan))
    assert golden == verdict.now
    # Three quarters of 4 MiB come from the others; w, 2 MiB, and the result are whole.
    assert golden.received_bytes == 3 * 2**20
    assert [(c.kind, c.axes, c.received_bytes) for c in golden.collectives] == [("all-gather", "d", 3 * 2**20)]
    assert [(w.value, w.nbytes) for w in golden.replicated] == [("negate", 2**22), ("params['w']", 2**21)]
    assert golden.machine == "h100:4"
    assert "/home" not in golden_path(plan).read_text()


def test_the_same_program_passes_wherever_its_lines_are(plan: Path) -> None:
    hs.check_plan(plan, step("replicated"), update=True)
    assert str(hs.check_plan(plan, step("replicated", line=99))) == "as recorded"


def test_more_bytes_and_more_replication_fail_by_name(plan: Path) -> None:
    hs.check_plan(plan, step(), update=True)
    with pytest.raises(hs.PlanError) as worse:
        hs.check_plan(plan, step("replicated"))
    said = str(worse.value)
    assert "received bytes grew from 0 to 3,145,728 (all-gather over d" in said
    assert "replicated bytes grew from 2,097,152 to 6,291,456 (negate at m.py:8: 0 -> 4,194,304)" in said
    assert "peak memory bytes grew" in said


def test_less_is_welcome_and_said(plan: Path) -> None:
    hs.check_plan(plan, step("replicated"), update=True)
    better = hs.check_plan(plan, step()).better
    assert better[0] == "received bytes fell from 3,145,728 to 0: record it with --update"
    assert len(better) == 3


def figures(**others: int) -> Golden:
    made = Golden(
        machine="h100:4", num_partitions=4, received_bytes=1000, peak_memory_bytes=1000, peak_at="dot at m.py:7",
        replicated_bytes=0, replicated_over=1, collectives=(), replicated=(),
    )  # fmt: skip
    return replace(made, **others)


@pytest.mark.parametrize(
    ("now", "tolerance", "fails"), [(1000, 0, False), (1001, 0, True), (1010, 0.01, False), (1011, 0.01, True)]
)
def test_the_tolerance_is_a_fraction(now: int, tolerance: float, fails: bool) -> None:
    verdict = judge_growth(figures(), figures(peak_memory_bytes=now), tolerance)
    assert verdict.worse == ((f"peak memory bytes grew from 1,000 to {now:,} (dot at m.py:7)",) if fails else ())


def test_figures_for_other_devices_are_not_compared(plan: Path) -> None:
    hs.check_plan(plan, step(), update=True)
    plan.write_text(PLAN.replace("h100:4", "a100:4"))
    with pytest.raises(hs.PlanError, match="the figures are of machine = 'h100:4', the program's is 'a100:4'"):
        hs.check_plan(plan, step())
    with pytest.raises(hs.PlanError, match="replicated_over"):
        hs.check_plan(plan.with_name("plan.toml"), hs.partition(step(), machine=hs.machines.h100(4)), replicated_over=5)


def test_nothing_recorded(plan: Path) -> None:
    with pytest.raises(hs.PlanError, match="no figures are recorded"):
        hs.check_plan(plan, step())


def test_replicated_values_are_those_of_the_program_that_runs() -> None:
    found = hs.partition(hs.PlanFile.parse(PLAN).apply(step()), machine=hs.machines.h100(4))
    assert [value.name for value in replicated_values(found)] == ["params['w']"]
    assert replicated_values(found, over=2**21) == []
    assert replicated_values(hs.partition(hs.load("HloModule m\nENTRY e {\n  ROOT x = f32[9] parameter(0)\n}"))) == []


BAD = [
    "", "version = 2", "version = 1", "version = 1\nmachine = 3", "[" * 5000,
    "version = 1\ncollectives = 3\nreplicated = []", "version = 1\ncollectives = [3]\nreplicated = []",
    "version = 1\ncollectives = [{kind = 3}]\nreplicated = []",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_recordings(plan: Path, text: str) -> None:
    golden_path(plan).write_text(text)
    with pytest.raises(hs.PlanError):
        hs.check_plan(plan, step())


@pytest.mark.parametrize("swapped", [("1000", '"many"'), ("1000", "true"), ('"h100:4"', "4"), ("peak_at", "peek_at")])
def test_figures_of_a_wrong_type(tmp_path: Path, swapped: tuple[str, str]) -> None:
    (tmp_path / "x.golden.toml").write_text(figures().to_text().replace(*swapped))
    with pytest.raises(hs.PlanError, match="--update"):
        Golden.read(tmp_path / "x.golden.toml")


numbers = st.integers(0, 2**60)


@given(numbers, numbers, st.text(st.characters(codec="utf-8"), max_size=9))
def test_figures_survive_the_file(tmp_path_factory: pytest.TempPathFactory, a: int, b: int, text: str) -> None:
    made = figures(received_bytes=a, replicated_bytes=b)
    made = replace(made, peak_at=text)
    file = tmp_path_factory.mktemp("golden") / "x.golden.toml"
    made.write(file)
    assert Golden.read(file) == made
