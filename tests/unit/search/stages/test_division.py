"""The best division of layers into stages, against all divisions there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scale import many_divisions
from hlosharding.search.stages import RunPrices, Stage, divide_layers

LAYERS = 8
Question = tuple[RunPrices, dict[str, Any]]


def all_divisions(prices: RunPrices, devices: int, first: int = 0) -> Iterator[list[Stage]]:
    """Of the layers from one on."""
    if first == prices.layers:
        yield from [[]] if devices == 0 else []
        return
    for option, size in enumerate(prices.devices.tolist()):
        for stop in range(first + 1, prices.layers + 1) if size <= devices else ():
            for rest in all_divisions(prices, devices - size, stop):
                yield [Stage(first, stop, option), *rest]


def seconds_of(stages: list[Stage], prices: RunPrices, microbatches: int, memory_bytes: float) -> float:
    """Of a step, as the formula stands in the paper, and its updates; infinite where a stage does not fit."""
    way = slowest = 0.0
    for number, (first, stop, option) in enumerate(stages):
        at = option, first, stop - 1
        in_flight = min(len(stages) - number, microbatches)
        if prices.kept[at] + in_flight * prices.held[at] > memory_bytes:
            return np.inf
        way += prices.seconds[at]
        slowest = max(slowest, (microbatches - 1) * prices.seconds[at] + prices.once[at])
    return way + slowest


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """Of runs whose figures add up over layers, and of others; few numbers, so that much is equal, or many."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    devices, most = draw(st.integers(1, 6)), draw(st.sampled_from([2, 1000]))

    def figures(*dims: int) -> np.ndarray:
        return random.integers(0, most, (len(sizes), LAYERS, *dims)) / 8

    if draw(st.booleans()):
        names = ("seconds", "once", "kept", "held", "scratch")
        prices = RunPrices.of_layers(sizes, **{name: figures() for name in names})
    else:
        prices = RunPrices(np.array(sizes), *(figures(LAYERS) for _ in range(4)))
        prices.kept[random.random(prices.kept.shape) < draw(st.sampled_from([0, 0.3]))] = np.inf
    memory = draw(st.sampled_from([0.5, 2, 8])) * most / 8
    return prices, {"devices": devices, "microbatches": draw(st.integers(1, 9)), "memory_bytes": memory}


@settings(max_examples=60, deadline=None)
@given(questions())
def test_no_division_takes_less(question: Question) -> None:
    prices, asked = question
    limits = asked["microbatches"], asked["memory_bytes"]
    least = min((seconds_of(each, prices, *limits) for each in all_divisions(prices, asked["devices"])), default=np.inf)
    found = divide_layers(prices, **asked)
    assert (found is None) == np.isinf(least)
    if found is not None:
        assert found.seconds == pytest.approx(least, rel=1e-12)
        assert seconds_of(list(found.stages), prices, *limits) == pytest.approx(least, rel=1e-12)
        assert sum(prices.devices[stage.option] for stage in found.stages) == asked["devices"]
        assert [stage.first for stage in found.stages] == [0, *(stage.stop for stage in found.stages[:-1])]


def example(layers: np.ndarray, sizes: list[int], **figures: float) -> RunPrices:
    """Layers that n devices compute in an n-th of the time; per layer the same of all else, over the devices."""
    shares = 1 / np.array(sizes)[:, None]
    others = dict.fromkeys(("once", "kept", "held", "scratch"), 0.0) | figures
    alike = {name: figure * shares * np.ones_like(layers) for name, figure in others.items()}
    return RunPrices.of_layers(sizes, seconds=layers * shares, **alike)


def test_a_heavy_end_has_fewer_layers() -> None:
    found = divide_layers(example(np.array([1.0] * 7 + [5.0]), [1]), devices=2, microbatches=100, memory_bytes=1)
    assert found is not None
    assert [(stage.first, stage.stop) for stage in found.stages] == [(0, 6), (6, 8)]
    assert found.seconds == 12 + 99 * 6


def test_a_stage_of_more_layers_has_more_devices() -> None:
    """Two layers that only one device can run, and six that share: 1 + 3 devices are the only balance."""
    prices = example(np.ones(8), [1, 3])
    prices.kept[1, :2, :] = np.inf
    found = divide_layers(prices, devices=4, microbatches=64, memory_bytes=1)
    assert found is not None
    assert [(stage.first, stage.stop, stage.option) for stage in found.stages] == [(0, 2, 0), (2, 8, 1)]
    assert found.seconds == 4 + 63 * 2


@pytest.mark.parametrize(("memory", "ends"), [(100, [4]), (11, [3]), (9.9, None)])
def test_the_first_stage_holds_one_microbatch_more(memory: float, ends: list[int] | None) -> None:
    """A layer keeps one, and holds one a microbatch: of n layers the first stage has 3n, the last one 2 (8 - n)."""
    prices = example(np.ones(8), [1], kept=1.0, held=1.0)
    found = divide_layers(prices, devices=2, microbatches=8, memory_bytes=memory)
    assert (found and [stage.stop for stage in found.stages[:-1]]) == ends


def test_of_equal_ones_the_most_even_is_found() -> None:
    """Whatever the first stages have, the last one is the slowest."""
    found = divide_layers(example(np.array([1.0] * 6 + [9.0, 9.0]), [1]), devices=4, microbatches=8, memory_bytes=1)
    assert found is not None
    assert [stage.stop - stage.first for stage in found.stages] == [3, 3, 1, 1]


def test_sixteen_layers_on_64_devices_are_all_divided() -> None:
    """(In less than 0.1 s: `benchmarks/scale.py`.)"""
    found = divide_layers(many_divisions(), devices=64, microbatches=128, memory_bytes=8)
    assert found is not None
    assert [stage.first for stage in found.stages[1:]] == [stage.stop for stage in found.stages[:-1]]
    assert found.stages[0].first == 0
    assert found.stages[-1].stop == 16
