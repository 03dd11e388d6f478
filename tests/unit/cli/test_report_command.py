"""`hlosharding report` and `explain` of collectives, as a shell sees them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from hlosharding.cli import main

DOCS = Path(__file__).resolve().parents[3] / "docs"
MLP = str(DOCS / "mlp.hlo")
H100 = ("--machine", "h100:8")


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 1
    seen = capsys.readouterr()
    assert not seen.out
    assert seen.err.count("\n") == 1
    return seen.err


def test_without_a_file_the_sections_are_tables(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "report", MLP, *H100)
    for title in ("SUMMARY", "TIMELINE", "COLLECTIVES", "PROGRAM", "SOURCE FILES", "REPLICATED VALUES", "MEMORY"):
        assert f"\n{title}\n" in shown


def test_a_page_is_written_and_nothing_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert output(capsys, "report", MLP, *H100, "-o", str(page)) == ""
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "report", MLP, *H100, "--emit", "json"))
    assert record["schema"] == "hlosharding.report/2"
    # The costliest first.  The result is gathered where it is made, before the sum over it is reduced.
    assert [one["numbers"] for one in record["collectives"]["collectives"]] == [[0], [2], [1]]
    assert record["collectives"]["collectives"][0]["detail"]["collectives"][0]["needed_by"] == "dot.2"


def test_beside_what_xla_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output(capsys, "report", MLP, *H100, "--against", "xla", "--emit", "json"))
    assert {row["figure"] for row in record["comparison"]["comparison"]} >= {"bytes received", "FLOPs"}
    rows = record["comparison"]["xla"]
    assert [(row["needed_by"], len(row["ours"])) for row in rows] == [("dot.2", 1), (None, 0), ("total", 1)]
    assert [row["bytes_per_device"] for row in rows] == sorted((row["bytes_per_device"] for row in rows), reverse=True)
    for row in rows:
        told = json.loads(output(capsys, "explain", MLP, f"xla#{row['number']}", *H100, "--emit", "json"))
        assert told["collectives"][0]["needed_by"] == row["needed_by"]


def test_remedies_for_the_program_with_its_edge_as_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Split otherwise than x, y moves: all-to-all of a tile of 4,096 bytes over 4 devices.  A closed result is whole.
    file = tmp_path / "crossed.hlo"
    file.write_text("""HloModule crossed, num_partitions=4
ENTRY main {
  x = f32[64,64] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64,64] parameter(1), sharding={devices=[1,4]<=[4]}
  ROOT z = f32[64,64] add(x, y)
}""")
    words = ("report", str(file), "--machine", "h100:4", "--suggest", "--emit", "json", "--to-outputs")
    [remedy] = json.loads(output(capsys, *words))["remedies"]["remedies"]
    assert (remedy["annotation"], remedy["saved_bytes"]) == ({"y": "{devices=[4,1]<=[4]}"}, 3_072)


def test_beside_another_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(Path(MLP).read_text())
    record = json.loads(output(capsys, "report", MLP, *H100, "--against", str(other), "--emit", "json"))
    assert {row["ratio"] for row in record["comparison"]["comparison"]} == {1.0}


def test_the_picture_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "program.svg"
    assert output(capsys, "report", MLP, *H100, "--plot", str(picture)) == ""
    words = [text.text for text in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert "all-reduce 24.6 kB" in words


def test_a_collective_is_explained_by_number_and_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    by_number = output(capsys, "explain", MLP, "#0", *H100)
    assert by_number == output(capsys, "explain", MLP, "mlp.py:8", "--collectives", *H100)
    for word in ("needed by %dot.2", "operand 0", "Splits of %dot.2", "what would remove it"):
        assert word in by_number


def test_a_collective_of_xlas_is_explained_by_the_op_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    told = output(capsys, "explain", MLP, "xla#0", *H100)
    for line in ("needed by %dot.2 (dot at mlp.py:8)", "our program has there: all-reduce f32[32,128]"):
        assert line in told
    [record] = json.loads(output(capsys, "explain", MLP, "xla#0", *H100, "--emit", "json"))["collectives"]
    assert (record["number"], record["needed_by"], len(record["ours"])) == (0, "dot.2", 1)
    assert "no collective #7; they are #0 to #2" in error(capsys, "explain", MLP, "xla#7")
    assert "no collective gone.py:3; they are #0 to #2" in error(capsys, "explain", MLP, "xla:gone.py:3")


def test_what_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no collective #7; they are #0 to #2" in error(capsys, "explain", MLP, "#7")
    assert "no collective mlp.py:1;" in error(capsys, "explain", MLP, "mlp.py:1", "--collectives")
    assert "no such file" in error(capsys, "report", MLP, "--against", "nothing.hlo")
    assert "cannot write" in error(capsys, "report", MLP, "-o", str(tmp_path / "no" / "report.html"))


def test_xla_compiles_for_as_many_devices_as_there_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wide = tmp_path / "wide.hlo"
    wide.write_text("HloModule m, num_partitions=16\nENTRY e {\n  ROOT x = f32[16] parameter(0)\n}")
    assert "16 CPU devices are needed" in error(capsys, "report", str(wide), "--against", "xla")
