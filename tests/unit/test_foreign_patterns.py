"""Patterns that read strangers' text look at each letter a few times at most, however bad the text."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from hlosharding.errors import HloShardingError
from hlosharding.notations import axis_sharding
from hlosharding.rules import parse_shardy_rule
from hlosharding.sharding.formats.cluster import Cluster
from hlosharding.spmd import collective
from hlosharding.xla_bridge import conversions
from hlosharding.xla_process import _CHECK

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[int], str | bytes]]] = {
    "blanks in a cluster": (Cluster.of, lambda n: "@m(" + " " * n + "x"),
    "a cluster that never ends": (Cluster.of, lambda n: "@m( rank = " + " " * n + "x"),
    "parentheses of a cluster": (Cluster.of, lambda n: "@m(" + ") " * n + "x"),
    "blanks behind axes": (axis_sharding._TEXT.fullmatch, lambda n: "[[0]]" + " " * n + "x"),
    "blanks before partial axes": (axis_sharding._TEXT.fullmatch, lambda n: "[[0]] partial" + " " * n + "x"),
    "brackets in a rule": (parse_shardy_rule, lambda n: "<(" + "[" * n + ")->([i]) {i=4}>"),
    "digits of a size": (conversions._NEGATIVE_SIZE.search, lambda n: b"a[-" + b"1" * n + b"x"),
    "a long word of XLA's": (lambda text: list(_CHECK.finditer(text)), lambda n: "a." * n),
    "digits behind a colon": (lambda text: list(_CHECK.finditer(text)), lambda n: "a:" + "1" * n),
    "a cause without an op": (collective._CAUSE.fullmatch, lambda n: " for %" * n),
    "a name of percent signs": (lambda text: collective._INSTRUCTION.sub("", text), lambda n: "%" * n),
}


def seconds(read: Callable[[Any], Any], text: str | bytes) -> float:
    """The least of three: what else runs here only adds."""

    def once() -> float:
        began = time.process_time()
        with suppress(HloShardingError):
            read(text)
        return time.process_time() - began

    return min(once() for _ in range(3))


@pytest.mark.parametrize("case", CASES)
def test_time_grows_as_the_text_does(case: str) -> None:
    read, text = CASES[case]
    # In linear time eight times as much, in quadratic time 64 times; half a millisecond is nothing.
    assert seconds(read, text(4000)) < 24 * seconds(read, text(500)) + 5e-4
