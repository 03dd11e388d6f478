"""`hlosharding check`: recorded, held, and broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlosharding.cli import main

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")
PLAN = "[mesh]\ndata = 2\nmodel = 4\n[annotations]\nw2 = 'P(model)'\n"


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "plan.toml").write_text(PLAN)
    return str(tmp_path / "plan.toml")


def test_recorded_then_held_then_broken(capsys: pytest.CaptureFixture[str], plan: str) -> None:
    assert main(["check", plan, MLP]) == 1
    assert "no figures are recorded" in capsys.readouterr().err
    assert main(["check", plan, MLP, "--update", "--replicated-over", "1000"]) == 0
    assert main(["check", plan, MLP]) == 0
    assert capsys.readouterr().out.endswith("as recorded\n")
    assert main(["check", plan, MLP, "--annotate", "w2={replicated}"]) == 1
    err = capsys.readouterr().err
    assert "replicated bytes grew from 0 to 262,144 (w2: 0 -> 262,144)" in err
    assert err.count("\n") == 1
    assert main(["check", plan, MLP, "--annotate", "w2={replicated}", "--tolerance", "9"]) == 1


def test_a_machine_that_nobody_names_is_the_same_everywhere(plan: str) -> None:
    assert main(["check", plan, MLP, "--update"]) == 0
    assert 'machine = "h100:8"' in Path(plan).with_suffix(".golden.toml").read_text()


def test_without_a_plan_what_is_whole_by_accident(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    words = ["check", MLP, "--replicated-over", "1000", "--mesh", "data=2,model=4"]
    assert main(words) == 1
    assert "annotate %w2=P('model', None)" in capsys.readouterr().out
    for asked in ("w2=P(model)", "w2=P()"):  # split, or meant to be whole
        assert main([*words, "--annotate", asked]) == 0
        assert "no value of more than 1,000 bytes is whole by accident" in capsys.readouterr().out
    assert main(["check", MLP]) == 0  # it has less than a mebibyte
    with pytest.raises(SystemExit):
        main(["check", MLP, "--update"])
    assert "--update needs PLAN" in capsys.readouterr().err
