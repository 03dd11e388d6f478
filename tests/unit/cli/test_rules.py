"""`--rule FILE.py`: a file that says how a custom call is split, and one that goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlosharding as hs
from hlosharding.cli import main

PROGRAM = """HloModule m, num_partitions=8
ENTRY e {
  x = f32[16,64] parameter(0), sharding={devices=[8,1]<=[8]}
  ROOT y = f32[16,64] custom-call(x), custom_call_target="TARGET", sharding={devices=[8,1]<=[8]}
}
"""


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    path = tmp_path / "program.hlo"
    path.write_text(PROGRAM.replace("TARGET", request.node.originalname))
    return str(path)


def test_rules_hold_for_the_program(program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import jax, hlosharding as hs\nhs.register_rule('test_rules_hold_for_the_program', like=jax.nn.softmax)\n"
    )
    assert main(["partition", program, "--collectives"]) == 0
    assert "all-gather" in capsys.readouterr().out
    assert main(["partition", program, "--collectives", "--rule", str(rules)]) == 0
    assert "all-gather" not in capsys.readouterr().out
    hs.unregister_rule("test_rules_hold_for_the_program")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import hlosharding as hs\n\nhs.register_rule('t', 'i -> i -> i')\n",
            "RuleError: rule 'i -> i -> i' has more than one",
        ),
        ("x = 1\n\nx.no\n", "AttributeError: 'int' object has no attribute 'no'"),
        ("def f():\n    return 1\n  x = 2\n", "IndentationError"),
        ("\n\nraise SystemExit(0)\n", "SystemExit: 0"),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError"),
    ],
)
def test_what_goes_wrong_names_the_line(
    text: str, says: str, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(text)
    assert main(["propagate", program, "--rule", str(rules)]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert f"at {rules}:3" in error


def test_a_file_that_is_not_there(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["propagate", program, "--rule", "no/such.py"]) == 1
    assert "cannot read no/such.py" in capsys.readouterr().err
