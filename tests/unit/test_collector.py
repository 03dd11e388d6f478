"""Garbage collection is off during a call, and as it was before afterwards, whatever happens inside."""

from __future__ import annotations

import gc

import pytest

from hlosharding.collector import collector_waits


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
