"""An estimate is the figure of the simulation of all microbatches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlosharding.schedule import estimated
from tests.support.uniform_pipelines import machine, pipeline

SECONDS = st.sampled_from([0.5, 1.0, 1.25, 2.0, 3.0])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("breadth-first", 2), ("zb-h1", 1)]),
    st.integers(1, 4),
    st.integers(1, 12),
    st.data(),
)
def test_it_is_what_the_simulation_of_all_gives(
    order: tuple[str, int], p: int, groups: int, data: st.DataObject
) -> None:
    name, chunks = order
    count, stages = groups * 4 * p if chunks > 1 else groups * 5, p * chunks
    f, b, w = (data.draw(st.lists(SECONDS, min_size=stages, max_size=stages)) for _ in range(3))
    made = pipeline(p, count, f, b, w if name == "zb-h1" else (), chunks=chunks)
    where = machine(p, latency=0.125)
    found, whole = estimated(made, name, count, where), made.simulate(name, count, where)
    assert found.time_s == pytest.approx(whole.time_s, rel=1e-9)
    assert found.peak_memory_bytes == pytest.approx(whole.peak_memory_bytes, rel=1e-9)
    for ours, theirs in zip(found.usage, whole.usage, strict=True):
        assert ours[1:] == pytest.approx(theirs[1:], rel=1e-9)
