"""Garbage collection is off during a call, and as it was before afterwards, whatever happens inside."""

from __future__ import annotations

import gc
import weakref

import pytest

from hlosharding import collector
from hlosharding.collector import collector_comes_after, collector_waits


@collector_waits
def is_collecting() -> bool:
    return gc.isenabled()


def test_it_is_off_inside_and_on_again_outside() -> None:
    assert not is_collecting()
    assert gc.isenabled()


def test_a_nested_call_leaves_it_off() -> None:
    assert collector_waits(lambda: (is_collecting(), gc.isenabled()))() == (False, False)
    assert gc.isenabled()


def test_an_error_turns_it_on_again() -> None:
    with pytest.raises(ZeroDivisionError):
        collector_waits(lambda: 1 / 0)()
    assert gc.isenabled()


def test_who_turned_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        is_collecting()
        assert not gc.isenabled()
    finally:
        gc.enable()


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@collector_waits
def knotted(count: int) -> weakref.ref[Knot]:
    first, *_ = [Knot() for _ in range(count)]
    return weakref.ref(first)


def test_what_a_large_pass_made_is_not_walked_when_it_ends() -> None:
    gc.collect()
    made = collector_waits(lambda: [[] for _ in range(collector._FEW + 1)])()
    old = gc.get_stats()[2]["collections"]
    assert any(o is made for o in gc.get_objects(generation=2))
    assert gc.get_stats()[2]["collections"] == old


def test_garbage_of_many_large_passes_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "_MANY", 3 * collector._FEW)
    gc.collect()
    found = [knotted(collector._FEW + 1) for _ in range(6)]
    assert found[0]() is None


def test_garbage_of_what_the_collector_comes_after_is_found_without_a_full_collection() -> None:
    gc.collect()
    old = gc.get_stats()[2]["collections"]
    found = collector_comes_after(lambda: weakref.ref(Knot()))()
    assert found() is None
    assert gc.get_stats()[2]["collections"] == old


def test_what_the_user_froze_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    try:
        collector_waits(lambda: [[] for _ in range(collector._FEW + 1)])()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
