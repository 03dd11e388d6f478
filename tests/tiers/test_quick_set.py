"""Which tests are in the quick set: the cheap always, the dear each in one commit of ten, new ones at once."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.tiers.quick_set import BUDGET, SHARES, QuickSet, chosen_share
from tests.tiers.recorder import RECORD, Cost, read_record, renewed, write_record

DEAR = [f"a.py::test_dear[{n}]" for n in range(40)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record of one cheap function of many tests, and one dear one."""
    path = tmp_path / "record.json"
    write_record(path, {"a.py::test_cheap": Cost(BUDGET / 2, 10_000), "a.py::test_dear": Cost(BUDGET, 40)})
    return path


def test_what_is_written_is_read(path: Path) -> None:
    assert read_record(path).functions["a.py::test_dear"] == (BUDGET, 40)


def test_what_some_tests_took_stands_for_all_of_their_function() -> None:
    recorded = {"a.py::test_dear": Cost(40.0, 40), "a.py::test_other": Cost(3.0, 1)}
    measured = {"a.py::test_dear": Cost(8.0, 4), "a.py::test_new": Cost(5.0, 2)}
    assert renewed(recorded, measured) == {
        "a.py::test_dear": Cost(80.0, 40), "a.py::test_other": Cost(3.0, 1), "a.py::test_new": Cost(5.0, 2),
    }  # fmt: skip


def test_few_were_never_recorded() -> None:
    """All of them run at each commit: 870 once took five times as long as the tests that were meant to."""
    root = Path(__file__).parents[2]
    here = {
        f"{path.relative_to(root)}::{name}"
        for path in root.glob("tests/**/test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    new = here - set(read_record(RECORD).functions)
    assert len(new) <= 200, f"{len(new)} functions are new: run `make record`, and commit {RECORD.name}"


def test_a_test_of_a_cheap_function_always_runs(path: Path) -> None:
    assert QuickSet(path, None).has("a.py::test_cheap[x]")


def test_a_new_test_always_runs(path: Path) -> None:
    assert QuickSet(path, None).has("a.py::test_new[x]")


def test_ten_shares_are_all_and_none_twice(path: Path) -> None:
    shares = [{name for name in DEAR if QuickSet(path, share).has(name)} for share in range(SHARES)]
    assert sorted(name for share in shares for name in share) == sorted(DEAR)
    assert all(len(share) < len(DEAR) / 2 for share in shares)


def test_no_share_is_no_dear_test(path: Path) -> None:
    assert not any(QuickSet(path, None).has(name) for name in DEAR)


@pytest.mark.parametrize(("said", "share"), [("3", 3), ("none", None)])
def test_a_share_is_said(said: str, share: int | None, tmp_path: Path) -> None:
    assert chosen_share(said, tmp_path) == share


@pytest.mark.parametrize("said", ["10", "-1", "third"])
def test_a_share_that_is_none_is_a_usage_error(said: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="a number from 0 to 9, or none"):
        chosen_share(said, tmp_path)


def test_without_history_it_is_the_first(tmp_path: Path) -> None:
    assert chosen_share(None, tmp_path) == 0


def test_each_commit_has_the_next(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for count in range(1, 4):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "m"], cwd=tmp_path, check=True)
        assert chosen_share(None, tmp_path) == count
