"""Other memory, other links, another batch: each answer is what a search finds that is asked so."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import Machine, machines
from hlosharding.errors import ScheduleError
from hlosharding.search import Plan, SearchResult, WhatIf, pareto
from hlosharding.search.what_if import contenders, of_memory, other_conditions
from tests.support.training_steps import perceptron as step

WEIGHTS = [jax.ShapeDtypeStruct((2048, 2048), jnp.float32)] * 4
ROWS = 4096


@cache
def found(memory: float = 80e9) -> SearchResult:
    return searched(replace(machines.h100(8), memory_bytes=memory), ROWS)


def searched(machine: Machine, rows: int, plans: list[Plan] | None = None) -> SearchResult:
    x = jax.ShapeDtypeStruct((rows, 2048), jnp.float32)
    asked: dict[str, Any] = {"strategies": ("", "fsdp"), "microbatches": (2,)} if plans is None else {}
    return hs.search(step, WEIGHTS, x, batch=["x"], machine=machine, plans=plans, prune=False, **asked)


def gigabytes(answer: WhatIf) -> float:
    """Of its condition, "with 96 GB a device"."""
    number, unit = answer.condition.split()[1:3]
    return float(number) * {"GB": 1.0, "MB": 1e-3}[unit]


def test_with_the_memory_that_is_said_the_search_finds_what_is_said() -> None:
    least = min(priced.peak_memory_bytes for priced in found().table)
    tight = found(1.2 * least)
    answers = of_memory(tight.table, tight.machine)
    assert len(answers) >= 2
    for answer in answers:
        again = found(gigabytes(answer) * 1e9)
        assert again.best == answer.best.plan
        assert again.table[0].time_s == answer.best.time_s
        assert answer.best.fits
        assert answer.today is None or answer.today.time_s >= answer.best.time_s


def test_memory_that_no_device_has_is_no_answer() -> None:
    assert len(pareto(found().table)) > 1
    assert of_memory(found().table, found().machine) == []


def test_other_links_and_batches_are_what_a_search_of_these_finds() -> None:
    answers = {answer.condition: answer for answer in found().what_if()}
    plans = contenders(found().table)[:6]
    asked = [
        (said, other.get("machine", found().machine), other.get("batch_size", ROWS))
        for said, other in other_conditions(found().machine, ROWS)
    ]
    assert list(answers) == [said for said, *_ in asked]
    for said, machine, rows in asked:
        again = searched(machine, rows, plans)
        best = next(each for each in again.table if each.plan == answers[said].best.plan)
        assert best.time_s == answers[said].best.time_s <= 1.01 * again.table[0].time_s


def test_links_of_several_nodes_are_those_between_them() -> None:
    one, two = machines.h100(8), machines.h100(16)
    inside, between = ([other["machine"] for _, other in other_conditions(each, None)] for each in (one, two))
    assert [each.inside.bandwidth / one.inside.bandwidth for each in inside] == [0.5, 2.0]
    assert [each.between.bandwidth / two.between.bandwidth for each in between] == [0.5, 2.0]
    assert {each.between for each in inside} | {each.inside for each in between} == {one.between, two.inside}
    assert list(other_conditions(Machine.of_parts(one, two), None)) == []


def test_where_today_stays_the_best_it_is_said_so() -> None:
    best = found().table[0]
    nearly = replace(best, plan=Plan(1, 8), time_s=0.995 * best.time_s)
    assert str(WhatIf.of("so", [nearly, best], best.plan)).startswith(f"so: still {best.plan} takes ")
    slower = replace(best, time_s=2 * best.time_s)
    assert f"; {best.plan} takes " in str(WhatIf.of("so", [nearly, slower], best.plan))
    large = [replace(each, fits=False) for each in (nearly, best)]
    assert str(WhatIf.of("so", large, best.plan)).startswith("so: none fits, the fastest, 1/8/1/1 takes ")


def test_a_traced_program_has_one_batch() -> None:
    module = hs.trace(step)(WEIGHTS, jax.ShapeDtypeStruct((64, 2048), jnp.float32))
    one = hs.search(module, batch=["x"], machine=machines.h100(2), plans=[Plan(2), Plan(1, 2)])
    assert all(answer.condition.startswith("links") for answer in one.what_if())
    with pytest.raises(ScheduleError, match="traced for a batch of 64, not of 128"):
        one.repriced(batch_size=128)


def test_a_smaller_machine_is_refused() -> None:
    with pytest.raises(ScheduleError, match="is for 8 devices"):
        found().repriced(machine=machines.h100(4))
