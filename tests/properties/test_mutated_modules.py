"""Modules with one attribute, operand or shape changed: partitioned in a form that XLA takes, or refused with an error
of ours that says what is wrong.
"""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from hlosharding import load, partition, propagate
from hlosharding.compiler import Partitioned
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module
from tests.oracle.opcode_modules import BODIES, opcode_module
from tests.support.mutated_modules import mutated

ROUNDS = 6


@cache
def module_of(opcode: str) -> Module:
    return load(opcode_module(opcode), format="hlo")


@pytest.mark.parametrize("opcode", BODIES)
def test_a_broken_module_is_refused_with_the_law_that_it_breaks(opcode: str) -> None:
    random = Random(opcode)
    for _ in range(ROUNDS):
        data, change = mutated(module_of(opcode), random)
        made = outcome(data)
        assert isinstance(made, Partitioned) or "the fault is ours" not in made, change
        if isinstance(made, Partitioned):
            assert made.cost.flops >= 0, change
            assert made.to_hlo_text(), change  # XLA reads what we made


def outcome(data: bytes) -> Partitioned | str:
    """The per-device program, or our words on why there is none."""
    try:
        return partition(propagate(load(data, format="hlo-proto"), to_outputs=True), num_partitions=4)
    except HloShardingError as error:
        return str(error)
