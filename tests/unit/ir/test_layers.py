"""Stretches that come again and again: all are found, and equal ones point to the same places."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.ir.layers import Repeat, find_repeats


@pytest.mark.parametrize(("length", "period", "count"), [(400, 20, 15), (3000, 100, 24)])
def test_rows_of_repeats_are_found(length: int, period: int, count: int) -> None:
    rng = np.random.default_rng(0)
    keys = (1000 + np.arange(length)).tolist()
    pattern = rng.integers(0, 500, period).tolist()
    keys[10 : 10 + period * count] = pattern * count
    found = find_repeats(keys, [()] * length)
    assert found == [Repeat(period, tuple(10 + period * i for i in range(count)))]


def test_repeats_must_point_to_the_same_places() -> None:
    keys = [*range(100, 110), *([1, 2, 3, 4, 5, 6, 7, 8] * 12)]
    straight = [((i - 1, 0),) if i > 10 else () for i in range(len(keys))]
    (repeat,) = find_repeats(keys, straight)
    assert len(repeat.starts) >= 11
    crossed = [((i - 1 - (i // 8) % 2, 0),) if i > 12 and (i - 10) % 8 > 3 else () for i in range(len(keys))]
    for repeat in find_repeats(keys, crossed, min_saving=8):
        inside = {
            tuple((p - s) if p >= s else None for i in range(repeat.length) for p, _ in crossed[s + i])
            for s in repeat.starts
        }
        assert len(inside) == 1
