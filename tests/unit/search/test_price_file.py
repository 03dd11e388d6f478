"""A search that was interrupted, wherever, ends as one that was not; files of other searches are refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.search import Plan, SizedPlan
from hlosharding.search.plan_prices import PlanPrices
from hlosharding.search.price_file import KnownPrices
from tests.support.training_steps import perceptron

MACHINE = machines.h100(4)


def traced(width: int = 64) -> hs.Module:
    weight, x = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((width, width), (32, width)))
    return hs.trace(perceptron)([weight] * 4, x)


def searched(module: hs.Module, path: Path | None = None, **options: Any) -> hs.SearchResult:
    """64 microbatches are refused: there are 32 examples."""
    given: dict[str, Any] = {
        "batch": ["x"],
        "machine": MACHINE,
        "microbatches": (2, 64),
        "keep": 3,
        "resume": path,
        **options,
    }
    return hs.search(module, **given)


def outcome(found: hs.SearchResult) -> Any:
    """All that a search says."""
    return [asdict(each) for each in found.table], found.refused, found.pruned, found.explain()


class Interrupted(Exception):
    """Pressed Ctrl-C."""


@pytest.mark.parametrize("after", [0, 1, 5])
def test_interrupted_and_gone_on_is_as_in_one_run(after: int, tmp_path: Path) -> None:
    module, path = traced(), tmp_path / "prices.jsonl"

    def interrupt(done: int, most: int) -> None:
        if done == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        searched(module, path, progress=interrupt)
    assert len(path.read_text().splitlines()) == 1 + after
    expected = searched(module)
    assert expected.refused
    assert outcome(searched(module, path)) == outcome(expected)


def test_what_is_known_is_not_priced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, path = traced(), tmp_path / "prices.jsonl"
    priced, simulated = list[SizedPlan](), PlanPrices.simulate

    def broken_off(self: PlanPrices, wanted: SizedPlan) -> Any:
        priced.append(wanted)
        if len(priced) == 3:
            raise KeyboardInterrupt
        return simulated(self, wanted)

    monkeypatch.setattr(PlanPrices, "simulate", broken_off)
    with pytest.raises(KeyboardInterrupt):
        searched(module, path)
    found = searched(module, path)
    assert priced[2] == priced[3]
    assert len(priced) - 1 == len(set(priced)) == len(found.table) + len(found.refused)
    del priced[:]
    assert outcome(searched(module, path)) == outcome(found)
    assert not priced


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    module, path = traced(), tmp_path / "prices.jsonl"
    expected = outcome(searched(module, path))
    whole = path.read_text()
    for size in (len(whole) - 5, whole.index("\n") - 5, len(whole) - 1, 0):
        path.write_text(whole[:size])
        assert outcome(searched(module, path)) == expected
        assert path.read_text() == whole


def test_files_of_other_searches_are_refused(tmp_path: Path) -> None:
    module, path = traced(), tmp_path / "prices.jsonl"
    searched(module, path)
    whole = path.read_text()
    cases: dict[str, Any] = {
        "program": (traced(128), {}),
        "machine": (module, {"machine": machines.a100(4)}),
        "plan space": (module, {"microbatches": (4,)}),
        "strategy": (module, {"strategies": {"": lambda module, ways, batch: {0: P()}}}),
        "choice of arguments": (module, {"donate": ["weights"]}),
    }
    for what, (program, options) in cases.items():
        with pytest.raises(ScheduleError, match=f"has prices of another {what}; name another file"):
            searched(program, path, **options)
    header = json.loads(whole.splitlines()[0])
    path.write_text(json.dumps({**header, "version": "0"}) + "\n")
    with pytest.raises(ScheduleError, match="has prices of another version;"):
        searched(module, path)


@pytest.mark.parametrize("text", ["# a diary\n", "half a line of a diary", "[1]\n", "\x00\xff"])
def test_a_file_of_something_else_stays_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "diary"
    path.write_text(text)
    with pytest.raises(ScheduleError, match="is no file of prices"):
        searched(traced(), path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "line", ["{}", "x", '{"plan": {"data": 2}, "batch_size": 4}', '{"plan": "2/1/1", "batch_size": 4, "refused": ""}']
)
def test_a_line_that_is_no_price(line: str, tmp_path: Path) -> None:
    module, path = traced(), tmp_path / "prices.jsonl"
    searched(module, path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ScheduleError, match=r"line \d+ of .*prices.jsonl is no price"):
        searched(module, path)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(HloShardingError, match="cannot write"):
        searched(traced(), tmp_path / "none" / "prices.jsonl")


def test_a_folder_that_goes_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    prices = KnownPrices(folder / "prices.jsonl")
    (folder / "prices.jsonl").unlink()
    folder.rmdir()
    with pytest.raises(HloShardingError, match=r"cannot write .*prices.jsonl: No such file"):
        prices.keep(SizedPlan(Plan(2), 8), "the batch is not cut")
