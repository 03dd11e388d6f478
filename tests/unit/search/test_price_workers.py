"""Several processes price what one does; none is left behind."""

from __future__ import annotations

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
from hlosharding.search import price_workers
from hlosharding.search.price_workers import _Worker  # pyright: ignore[reportPrivateUsage]
from tests.support.training_steps import perceptron

MACHINE = machines.h100(4)
WEIGHT, X = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((64, 64), (32, 64)))


def searched(**options: Any) -> hs.SearchResult:
    """Of 32 examples no 64 microbatches are made, of 96 are."""
    given: dict[str, Any] = {"batch": ["x"], "machine": MACHINE, "microbatches": (2, 32), "keep": 3, **options}
    return hs.search(perceptron, [WEIGHT] * 4, X, **given)


def outcome(found: hs.SearchResult) -> Any:
    return [asdict(each) for each in found.table], sorted(found.refused), found.explain()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[_Worker]:
    """Those that were started."""
    found: list[_Worker] = []

    class Noted(_Worker):
        def __init__(self, job: bytes) -> None:
            super().__init__(job)
            found.append(self)

    monkeypatch.setattr(price_workers, "_Worker", Noted)
    return found


def are_gone(workers: list[_Worker]) -> bool:
    return all(worker._process.poll() is not None for worker in workers)


def test_they_find_what_one_finds(workers: list[_Worker]) -> None:
    options: dict[str, Any] = {"batch_sizes": [32, 96], "strategies": ("", "fsdp")}
    assert outcome(searched(jobs=2, **options)) == outcome(searched(**options))
    assert len(workers) == 2
    assert are_gone(workers)


def test_each_prunes_by_what_it_has_seen() -> None:
    every, few = searched(keep=1, prune=False), searched(keep=1, jobs=3)
    assert few.best == every.best
    priced = {each.plan: each.time_s for each in every.table}
    assert all(priced[each.plan] >= least > few.table[0].time_s for each, least in few.pruned)
    assert len(few.table) + len(few.refused) + len(few.pruned) == len(every.table) + len(every.refused)


def test_interrupted_and_gone_on(workers: list[_Worker], tmp_path: Path) -> None:
    path = tmp_path / "prices.jsonl"

    def interrupt(done: int, most: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(jobs=2, resume=path, prune=False, progress=interrupt)
    assert are_gone(workers)
    assert len(path.read_text().splitlines()) == 1 + 3
    assert outcome(searched(jobs=2, resume=path, prune=False)) == outcome(searched(prune=False))


def test_a_strategy_that_stays_here_is_refused() -> None:
    with pytest.raises(ScheduleError, match="cannot be handed to other processes"):
        searched(jobs=2, strategies={"mine": lambda module, ways, batch: {"x": P("data")}})


def test_programs_deeper_than_pythons_stack_are_handed_over() -> None:
    def deep(x: jax.Array) -> jax.Array:
        for n in range(3000):
            x = x + n
        return x

    given: dict[str, Any] = {"batch": ["x"], "machine": machines.h100(2), "plans": [hs.Plan(2)], "keep": 0}
    assert outcome(hs.search(deep, X, jobs=2, **given)) == outcome(hs.search(deep, X, **given))


def test_a_process_that_dies_says_of_what(workers: list[_Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_workers, "_SERVE", ("os", "no_such_function"))
    with pytest.raises(HloShardingError, match=r"plans died: .*no_such_function'; take jobs=1"):
        searched(jobs=2)
    assert are_gone(workers)


def test_no_processes_price_nothing() -> None:
    with pytest.raises(ScheduleError, match="0 processes"):
        searched(jobs=0)
