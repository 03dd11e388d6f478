"""Plan files: what they say survives being written and read, what they cannot say is refused by name, soon."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.plans import PipelineSteps, PlanFile
from hlosharding.sharding import MeshInfo

TEXT = """HloModule m
ENTRY e {
  w1 = f32[8,4] parameter(0), metadata={op_name="params['w1']"}
  w2 = f32[4,8] parameter(1), metadata={op_name="params['w2']"}
  ROOT y = f32[8,8] dot(w1, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
PLAN = """
# A comment of people is theirs.
machine = "h100:8"
objective = "bytes"
[mesh]
data = 2
model = 4
[annotations]
"params[*]" = "P(data)"
"params['w2']" = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
"""


def read(tmp_path: Path, text: str, name: str = "plan.toml") -> PlanFile:
    file = tmp_path / name
    file.write_text(text)
    return PlanFile.read(file)


def test_a_file_is_applied_later_names_after_earlier_ones(tmp_path: Path) -> None:
    plan = read(tmp_path, PLAN)
    made = plan.apply(hs.load(TEXT))
    said = {i.name: str(made.sharding(i)) for i in made.entry.parameters}
    assert said == {
        "w1": "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
        "w2": "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",
    }
    assert (made.num_partitions, made.mesh) == (8, MeshInfo(("data", "model"), (2, 4)))
    machine = plan.machine_for(made)
    assert machine is not None
    assert (machine.name, plan.options.objective) == ("h100(8)", "bytes")


def test_devices_in_another_order_and_json_with_the_same_keys(tmp_path: Path) -> None:
    said = {"mesh": {"d": 4}, "device_ids": [3, 2, 1, 0], "annotations": {"w1": "P('d')"}}
    made = read(tmp_path, json.dumps(said), "plan.json").apply(hs.load(TEXT))
    assert str(made.sharding(made.by_name("w1"))) == "{devices=[4,1]3,2,1,0}"


def test_values_of_annotate_become_texts() -> None:
    mesh = MeshInfo(("a", "b"), (2, 2))
    tiled = hs.HloSharding.parse("{devices=[2,1,2]<=[4] last_tile_dim_replicate}")
    plan = PlanFile.of({"x": P(None, ("a", "b")), "y": tiled, "z": "P(b)"}, mesh=mesh)
    assert plan.annotations == (("x", "P(None, ('a', 'b'))"), ("y", "P('a', None)"), ("z", "P(b)"))


def test_the_plan_above_counts_and_the_machine_stands_beside_the_file(tmp_path: Path) -> None:
    below = read(tmp_path, 'machine = "ours.toml"\n[annotations]\nx = "{replicated}"\n"*" = "{replicated}"')
    assert below.machine == str(tmp_path / "ours.toml")
    both = PlanFile(annotations=(("x", "P(a)"),), objective="time").over(below)
    assert both.annotations == (("*", "{replicated}"), ("x", "P(a)"))  # what comes later wins over the glob
    assert (both.machine, both.objective) == (below.machine, "time")


def test_an_empty_file_changes_nothing() -> None:
    module = hs.load(TEXT)
    assert PlanFile.parse("").apply(module) is module


# ---- round trips

axes = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=3, unique=True)
sizes = st.integers(1, 4)


@st.composite
def meshes(draw: st.DrawFn) -> MeshInfo:
    names = draw(axes)
    dims = [draw(sizes) for _ in names]
    count = MeshInfo(names, dims).num_devices
    return MeshInfo(names, dims, draw(st.permutations(range(count))) if draw(st.booleans()) else None)


@st.composite
def plans(draw: st.DrawFn) -> PlanFile:
    mesh = draw(st.none() | meshes())
    entries = st.none() if mesh is None else st.none() | st.sampled_from(mesh.names)
    specs = st.lists(entries, max_size=3).filter(lambda s: len({e for e in s if e}) == sum(map(bool, s)))
    shardings = st.sampled_from(["{replicated}", "{devices=[2,1]<=[2]}"]) | specs.map(
        lambda s: f"P({', '.join(map(repr, s))})"
    )
    word = st.text(st.characters(codec="utf-8"), max_size=8)
    steps = st.builds(
        PipelineSteps,
        stages=st.integers(1, 9),
        microbatches=st.integers(1, 9),
        schedule=word,
        order=word,
        layers=st.lists(st.integers(1, 9), max_size=3).map(tuple),
    )
    return PlanFile(
        annotations=tuple(draw(st.dictionaries(word, shardings, max_size=4)).items()),
        mesh=mesh,
        machine=draw(st.sampled_from(["", "h100", "a100:16"])),
        objective=draw(st.sampled_from(["", "bytes", "time"])),
        strategy=draw(word),
        sequence=draw(st.booleans()),
        batch=tuple(draw(st.lists(word, max_size=2))),
        donate=tuple(draw(st.lists(word, max_size=2))),
        pipeline=draw(st.none() | steps),
        comment=draw(word),
    )


@given(plans())
def test_what_a_plan_says_survives_the_round_trip(plan: PlanFile) -> None:
    assert PlanFile.parse(plan.to_text()) == plan


@given(plan=plans())
def test_likewise_in_json_files(plan: PlanFile, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    plan.write(file)
    assert PlanFile.read(file) == plan


# ---- bad files

BAD = [
    ("machin = 'h100:8'", "machin: no such key; at FILE:1; did you mean machine?"),
    ("[annotations]\nx = 3", "annotations: it is a table; at FILE:1; write a table of names and shardings"),
    ("\n[annotations]\nx = '{devices=[2]<=[3]}'", "annotations.x: "),
    ("\n[annotations]\nx = '{devices=[2]<=[3]}'", "at FILE:3"),
    ("[annotations]\nx = 'P(1 + 1)'", "is no PartitionSpec"),
    ("[annotations]\nx = \"P(__import__('os'))\"", "is no PartitionSpec"),
    ("[mesh]\ndata = 2\n[annotations]\nx = 'P(dta)'", "annotations.x: the mesh has no axis 'dta'; at FILE:4; its axes"),
    ("[mesh]\ndata = 0", "mesh: it is a table; at FILE:1; write a table of axes, as data = 2"),
    ("[mesh]\ndata = true", "write a table of axes"),
    ("[mesh]\na = 1048576\nb = 1048576", "mesh: 1099511627776 devices are more than the 1048576 that can be listed"),
    ("device_ids = [1, 0]", "device_ids: there is no mesh whose devices these are"),
    ("device_ids = [1, 1]\n[mesh]\na = 2", "device_ids: device ids must be 0 to 1, each once"),
    ("device_ids = [-1, 0]\n[mesh]\na = 2", "device_ids: it is a list"),
    ("machine = 'h1000:8'", "machine: no machine 'h1000'; at FILE:1"),
    ("machine = 'h100:0'", "machine: 'h100:0' is no machine"),
    ("machine = 8", "machine: it is 8; at FILE:1; write a text"),
    ("objective = 'speed'", "objective: it is 'speed'; at FILE:1; write one of time, bytes"),
    ("version = 2", "version: this reads version 1 only"),
    ("pipeline = 2", "pipeline: it is 2"),
    ("[mesh]\na = 8\n[pipeline]\nstages = 1099511627776", "pipeline.stages: 8796093022208 devices are more than"),
    ("[pipeline]\nstage = 2", "pipeline.stage: no such key; at FILE:2; did you mean stages?"),
    ("[pipeline]\nbatch = ['x']", "pipeline.batch: no such key; at FILE:2; there are stages, microbatches, schedule"),
    ("batch = 'x'", "batch: it is 'x'; at FILE:1; write a list of arguments' paths"),
    ("sequence = 1", "sequence: it is 1; at FILE:1; write true or false"),
    ("strategy = ['fsdp']", "strategy: it is a list; at FILE:1; write a text"),
    ("x = [", "is no TOML"),
    ("[mesh]\na = 1\na = 2", "is no TOML"),
    ("x = " + "[" * 100_000, "is no TOML"),
    ("x = " + "{a=" * 100_000, "is no TOML"),
    ("x = " + "9" * 10_000, "is no TOML"),
    ("a" + ".a" * 50_000 + " = 1", "at line 1; write at most 64 dots in a key"),
    ("x = 1\n[a" + " . 'a'" * 65 + "]", "at line 2; write at most 64 dots in a key"),
    ("version = 0x" + "f" * 5000, "a number of more than 63 bits"),
    ("objective = []", "objective: it is a list; at FILE:1; write one of time, bytes"),
    ("x" * 1_000_000 + " = 1", "no such key"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD, ids=range(len(BAD)))
def test_what_is_no_plan_is_refused_by_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(hs.PlanError) as refused:
        read(tmp_path, text)
    assert says.replace("FILE", str(tmp_path / "plan.toml")) in str(refused.value)
    assert len(str(refused.value)) < 1000
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("comment", ["." * 70, "a.b" * 70 + "'" * 3, '"' * 5 + "\\", "\r\n\x7f\0", "#" + "x." * 70])
def test_a_comment_of_any_letters_survives_the_round_trip(comment: str) -> None:
    plan = PlanFile(comment=comment, annotations=((comment, "{replicated}"),))
    assert PlanFile.parse(plan.to_text()) == plan


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"mesh": {"a": 1, "a": 2}}', "[" * 100_000, "{", '{"mesh": NaN}', '{"comment": "\\ud800"}']
)
def test_bad_json(tmp_path: Path, text: str) -> None:
    with pytest.raises(hs.PlanError):
        read(tmp_path, text, "plan.json")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(hs.PlanError, match="No such file"):
        PlanFile.read(tmp_path / "none.toml")
    with pytest.raises(hs.PlanError, match="Is a directory"):
        PlanFile.read(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(hs.PlanError, match="is no text"):
        PlanFile.read(tmp_path / "binary.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2**22 + 1))
    with pytest.raises(hs.PlanError, match="more than 4,194,304 bytes"):
        PlanFile.read(tmp_path / "large.toml")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_plan_or_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("plans") / "plan.toml"
    file.write_bytes(data)
    with contextlib.suppress(hs.PlanError):
        assert isinstance(PlanFile.read(file), PlanFile)


def test_names_that_match_nothing_and_meshes_of_another_size() -> None:
    module = hs.load(TEXT)
    with pytest.raises(hs.AnnotationError, match="did you mean"):
        PlanFile.parse("[annotations]\n\"params['w3']\" = '{replicated}'").apply(module)
    module.num_partitions = 3
    with pytest.raises(hs.HloShardingError, match="the mesh has 2 devices, the program is for 3"):
        PlanFile.parse("[mesh]\na = 2").apply(module)


@pytest.mark.parametrize("said", ["strategy = 'fsdp'", "batch = ['w1']"])
def test_what_annotations_do_not_say_is_not_ignored(said: str) -> None:
    with pytest.raises(hs.PlanError, match=r"which say more than its annotations; take hs\.apply_plan"):
        PlanFile.parse(f"{said}\n[mesh]\ndata = 2").apply(hs.load(TEXT))
