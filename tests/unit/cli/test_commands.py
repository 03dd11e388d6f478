"""Every command on a small program, in this process: what it prints, what it writes."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cli import main

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")
H100 = ("--machine", "h100")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Standard output of a command that goes well."""
    status = main(words)
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"hlosharding {hs.__version__}\n")


def test_propagate_writes_the_program_with_its_shardings(capsys: pytest.CaptureFixture[str]) -> None:
    found = hs.load(run(capsys, "propagate", MLP))
    assert str(found.sharding(found.by_name("hidden"))) == "{devices=[2,4]<=[8]}"
    assert found.sharding(found.by_name("w2")) is None


def test_annotations_and_open_boundaries(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--mesh", "data=2,model=4", "--annotate", "w2=P(model, None)", "--to-outputs", "--to-parameters")
    found = hs.load(run(capsys, "propagate", MLP, *words))
    assert str(found.sharding(found.by_name("w2"))) == "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    assert found.sharding(found.entry.root) is not None
    assert "P('model', None)" in run(capsys, "propagate", MLP, *words, "--table")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--to", "dtensor", "--mesh", "x=2,y=4"), "(Shard(dim=1), Shard(dim=0))"),
        (("--to", "mesh", "--mesh", "2x4", "--from", "v2", "--ndim", "2"), "[[1], [0]]"),
        (("--to", "v1"), "{devices=[4,2]0,4,1,5,2,6,3,7}"),
        (("--to", "spec", "--mesh", 'sdy.mesh @m = <["x"=2, "y"=4]>'), "P('y', 'x')"),
    ],
)
def test_a_sharding_is_converted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: str
) -> None:
    text = "{devices=[4,2]<=[2,4]T(1,0)}"
    assert run(capsys, "convert", "--sharding", text, *words) == expected + "\n"
    give(monkeypatch, text.encode() + b"\n")
    assert run(capsys, "convert", "--sharding", "-", *words) == expected + "\n"


def test_a_name_may_hold_an_equals_sign(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text("HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0), metadata={op_name=\"p['a=b']\"}\n}")
    found = hs.load(run(capsys, "propagate", str(file), "--annotate", "p['a=b']={devices=[8]<=[8]}"))
    assert str(found.sharding(found.entry.root)) == "{devices=[8]<=[8]}"


def test_standard_input_in_every_format(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = hs.load(MLP)
    for data in (module.to_hlo_text().encode(), module.to_hlo_proto(), module.to_stablehlo_text().encode()):
        give(monkeypatch, data)
        record = json.loads(run(capsys, "propagate", "-", "--emit", "json"))
        assert "{devices=[2,4]<=[8]}" in record["shardings"].values()


@pytest.mark.parametrize("form", ["hlo", "hlo-proto", "stablehlo"])
def test_convert_keeps_the_program(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    out = tmp_path / "converted"
    assert run(capsys, "convert", MLP, "--emit", form, "-o", str(out)) == ""
    found = hs.load(out)
    assert [p.shape for p in found.entry.parameters] == [p.shape for p in hs.load(MLP).entry.parameters]
    assert found.num_partitions == 8


def test_a_file_is_replaced_whole_and_keeps_no_draft(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(out)
    run(capsys, "convert", MLP, "--emit", "json", "-o", str(link))
    assert json.loads(out.read_text())["entry"] == "main"
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "out.json"]


def test_partition_shows_cost_and_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "partition", MLP, *H100, "--mesh", "data=2,model=4")
    for words in ("mlp on 8 devices", "peak memory", "Collectives of one run", "all-reduce", "mlp.py:8"):
        assert words in out


def test_partition_views_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    collectives = run(capsys, "partition", MLP, *H100, "--collectives")
    assert "Collectives of one run" in collectives
    assert "peak memory" not in collectives
    cost = run(capsys, "partition", MLP, "--machine", "a100:16", "--cost")
    assert "Cost by source line" in cost
    assert "a100(16)" in cost


def test_partition_lists_the_values_sharded_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    title = "Sharded otherwise than propagated"
    alone = run(capsys, "partition", MLP, *H100, "--sharding-overrides")
    assert title in alone
    assert "Collectives of one run" not in alone


def test_partition_dumps_the_program_after_each_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "partition", MLP, *H100, "--emit", "hlo", "--dump-passes", str(tmp_path / "passes"))
    texts = [path.read_text() for path in sorted((tmp_path / "passes").iterdir())]
    assert len(texts) == 8
    assert all(hs.load(text, format="hlo").num_partitions == 8 for text in texts)


def test_partition_emits_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    local = hs.load(run(capsys, "partition", MLP, *H100, "--emit", "hlo"))
    assert str(local.entry.parameters[0].shape) == "f32[32,128]"
    assert "stablehlo.all_reduce" in run(capsys, "partition", MLP, *H100, "--emit", "stablehlo")
    source = run(capsys, "partition", MLP, *H100, "--emit", "python")
    compile(source, "program", "exec")
    record = json.loads(run(capsys, "partition", MLP, *H100, "--emit", "json"))
    assert {c["kind"] for c in record["collectives"]} >= {"all-reduce"}


def test_the_mesh_says_how_many_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    record = json.loads(run(capsys, "partition", str(file), *H100, "--mesh", "a=2,b=2", "--emit", "json"))
    assert record["num_partitions"] == 4
    record = json.loads(run(capsys, "partition", str(file), *H100, "-n", "3", "--emit", "json"))
    assert record["num_partitions"] == 3


def test_explain_by_value_by_path_and_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "given by the user on %x" in run(capsys, "explain", MLP, "hidden")
    both = run(capsys, "explain", MLP, "mlp.py:7")
    assert both.startswith("%hidden")
    assert "\n\n%active" in both
    file = tmp_path / "m.hlo"
    file.write_text("HloModule m\nENTRY e {\n  ROOT x = f32[8] parameter(0), metadata={op_name=\"p['w']\"}\n}")
    assert run(capsys, "explain", str(file), "p['w']").startswith("%x")
    [one] = json.loads(run(capsys, "explain", MLP, "total", "--emit", "json"))["explanations"]
    assert one["chain"][0]["name"] == "total"


@pytest.mark.parametrize("how", [(), ("--reference",)])
def test_run_agrees_with_one_device(capsys: pytest.CaptureFixture[str], how: tuple[str, ...]) -> None:
    record = json.loads(run(capsys, "run", MLP, "--check", "--emit", "json", *how))
    assert [output["agrees"] for output in record["outputs"]] == [True, True]
    assert "from one device's run" not in run(capsys, "run", MLP, *how)


def inputs() -> dict[str, Any]:
    return {
        "x": np.ones((64, 128), np.float32),
        "w1": np.full((128, 512), 1 / 128, np.float32),
        "w2": np.ones((512, 128), np.float32),
    }


@pytest.mark.parametrize("by_name", [True, False])
def test_inputs_come_from_a_file_and_outputs_go_to_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, by_name: bool
) -> None:
    given, saved = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(given, *([] if by_name else inputs().values()), **(inputs() if by_name else {}))
    assert "mlp on 8 devices" in run(capsys, "run", MLP, "--inputs", str(given), "--save", str(saved))
    with np.load(saved) as outputs:
        # tanh(1) summed over 512 columns.
        np.testing.assert_allclose(outputs["output_0"], np.full((64, 128), 512 * np.tanh(1)), rtol=1e-5)
        assert outputs["output_1"].shape == ()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npz", "out.npz"]


def test_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    one, same, other = (run(capsys, "run", MLP, "--reference", "--random", seed) for seed in "112")
    assert one == same
    assert one != other


CLASH = str(Path(MLP).with_name("clash.hlo"))


def test_conflicts_as_table_and_as_record(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    table = run(capsys, "propagate", CLASH, "--conflicts")
    assert table.count("user: %rows at clash.py:6") == 1
    record = json.loads(run(capsys, "propagate", CLASH, "--conflicts", "--emit", "json"))
    assert [one["loser"]["name"] for one in record["conflicts"]] == ["rows", "more"]
    assert "none" in run(capsys, "propagate", MLP, "--conflicts")


def test_the_trace_and_a_difference_as_records(capsys: pytest.CaptureFixture[str]) -> None:
    steps = json.loads(run(capsys, "propagate", MLP, "--trace", "--emit", "json"))["steps"]
    assert [step["name"] for step in steps] == ["hidden", "active", "dot.2", "total"]
    words = ("--diff", "w2={devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "--emit", "json")
    assert list(json.loads(run(capsys, "propagate", MLP, *words))["differing"]) == ["w2"]


def test_an_element_of_a_tuple_and_a_whole_chain_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "explain", MLP, "result{0}", "--to-outputs", "--whole").startswith("%result{0} (tuple")


def test_suggest_ends_a_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("suggest", CLASH, "free", "--conflict", "%rows", "--machine", "h100:4")
    assert run(capsys, *words, "--most", "1").startswith("annotate %free={devices=[4,1]<=[4]}: ")
    (best, *_) = json.loads(run(capsys, *words, "--emit", "json"))["suggestions"]
    assert (best["conflicts_before"], best["conflicts_after"], best["is_smallest"]) == (2, 1, True)


def test_a_suggestion_is_a_patch_of_the_source(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "mlp.py"
    source.write_text((Path(MLP).parent / "mlp.py").read_text())
    words = ("suggest", MLP, "w2", "--machine", "h100:8", "--mesh", "data=2,model=4", "--apply", str(source))
    patch = run(capsys, *words)
    assert patch.startswith("# annotate %w2=P('model', None)")
    assert "+    w2 = jax.lax.with_sharding_constraint(w2, sharding_at('model'))\n" in patch
    assert run(capsys, *words, "-o", str(tmp_path / "copy.py")) == ""
    subprocess.run(["patch", "-p1", "mlp.py"], input=patch, text=True, check=True, cwd=tmp_path, stdout=subprocess.PIPE)
    assert source.read_text() == (tmp_path / "copy.py").read_text()
    assert main([*words, "-o", str(source)]) == 1
    assert "is the source itself; write a copy" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["suggest", MLP, "w2", "-o", str(source)])
    assert "--output needs --apply" in capsys.readouterr().err


def test_suggest_of_a_collective_and_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ("--machine", "h100:8")
    of_collective = run(capsys, "suggest", MLP, "#0", *machine).splitlines()
    assert of_collective[0].startswith("annotate %")
    assert set(of_collective) <= set(run(capsys, "suggest", MLP, "mlp.py:8", *machine, "--most", "99").splitlines())
    assert main(["suggest", MLP, "#9", *machine]) == 1
    assert "no collective #9; they are #0 to #2" in capsys.readouterr().err


def test_suggest_propagates_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """`w2` is split by its user as soon as parameters are open: then nothing is left to suggest."""
    assert main(["suggest", MLP, "w2", "--to-parameters"]) == 1
    assert "there is nothing to remove" in capsys.readouterr().err


def test_plans_predictions_and_drawings_as_records(capsys: pytest.CaptureFixture[str]) -> None:
    rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    plan = json.loads(run(capsys, "reshard", "--shape", "f32[4,4]", rows, columns, "--emit", "json"))
    assert plan["received_bytes"] == plan["lower_bound"] == 16
    assert json.loads(run(capsys, "simulate", MLP, *H100, "--emit", "json"))["timeline"]
    assert json.loads(run(capsys, "draw", "--shape", "f32[4,4]", rows, "--emit", "json"))["tiles"] == [[0], [1]]


def test_execution_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "propagate", MLP, "--execution-threads", "main") == run(capsys, "propagate", MLP)
    assert main(["propagate", MLP, "--execution-threads", "host"]) == 1
    assert "no computation runs on execution thread 'host'" in capsys.readouterr().err


@pytest.mark.gpu_compiler
def test_compile_shows_memory_and_collectives_and_writes_the_hlo(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out.hlo"
    record = json.loads(run(capsys, "compile", MLP, "--target", "h100:8", "--emit", "json", "-o", str(out)))
    assert record["target"] == "h100(8)"
    assert record["memory"]["arguments"] == {"ours": 344064, "xla": 344064, "ratio": 1.0}
    planned = hs.partition(hs.load(MLP), machine=hs.machines.h100(8)).comm_bytes_per_device
    assert sum(row["planned_bytes"] for row in record["collectives"]) == planned
    assert sum(row["ours_bytes"] for row in record["collectives"]) == planned
    assert "is_scheduled=true" in out.read_text()
    assert "ours, planned" in run(capsys, "compile", MLP, "--target", "h100")
    assert run(capsys, "compile", MLP, "--target", "h100", "-o", "-").startswith("HloModule")


def test_the_text_of_the_mesh_dialect_at_both_stages(capsys: pytest.CaptureFixture[str]) -> None:
    axes = ("--mesh", "data=2,model=4")
    annotated = run(capsys, "propagate", MLP, *axes, "--emit", "mesh")
    assert annotated.startswith("mesh.cluster @mesh0(rank = 2, dim_sizes = [2, 4], axis_names = [data, model])\n")
    # Orders are those of the file: x by rows over data, w1 by columns over model.
    for argument, lists in ("%arg0", "[[0]]"), ("%arg1", "[[], [1]]"):
        assert f"mesh.annotate {argument} {{required = true, sharding = {lists}}}" in annotated
    # The second product adds up what lies over model; its reader takes the sum whole.
    materialized = run(capsys, "partition", MLP, *H100, *axes, "--emit", "mesh")
    [moved] = [line for line in materialized.splitlines() if " = mesh." in line]
    assert 'mesh.all_reduce %2 {mesh_axis = [1], reduction = "sum"}' in moved


def test_programs_for_shardy_and_for_other_compilers(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("convert", "propagate"):
        text = run(capsys, command, MLP, "--emit", "sdy")
        assert "sdy.mesh @mesh" in text
        assert hs.load(text).num_partitions == 8
    text = run(capsys, "partition", MLP, *H100, "--emit", "stablehlo")
    assert "mhlo.num_partitions = 8" in text
    assert "sharding" not in text.replace("hlosharding.cause", "")
