"""Whole programs that are compared: which one is taken."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import hlosharding as hs
from hlosharding.compiler.alternatives import is_better
from hlosharding.partitioner import PartitionOptions


@dataclass
class Priced:
    """What `is_better` reads of an alternative."""

    bytes: float = 100.0
    seconds: float = 1.0
    flops: float = 1.0
    peak: float = 1.0

    @property
    def cost(self) -> SimpleNamespace:
        return SimpleNamespace(flops=self.flops, peak_memory_bytes=self.peak, comm_bytes=self.bytes)


@pytest.mark.parametrize(
    ("new", "wins"),
    [
        (Priced(), False),
        (Priced(bytes=90), True),
        (Priced(bytes=97), False),  # not clearly fewer
        (Priced(bytes=90, seconds=1.01), False),
        (Priced(seconds=0.9), True),
        (Priced(bytes=103, seconds=0.9), False),
        (Priced(bytes=50, flops=1.06), False),
        (Priced(bytes=50, peak=1.06), False),
    ],
    ids=str,
)
def test_an_alternative_must_be_better_at_no_price(new: Priced, wins: bool) -> None:
    assert is_better(new, Priced()) is wins  # pyright: ignore[reportArgumentType]


GATHERED = """HloModule m, num_partitions=4
ENTRY e {
  x = f32[4096,1024] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[4096,1024] parameter(1), sharding={devices=[4,1]<=[4]}
  sum = f32[4096,1024] add(x, y), sharding={devices=[4,1]<=[4]}
  w = f32[1024,4096] parameter(2), sharding={devices=[1,4]<=[4]}
  ROOT out = f32[4096,4096] dot(sum, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    sharding={devices=[1,4]<=[4]}
}"""


def loops(overlap: str) -> int:
    """How many loops the program has, its product as a loop of permutes or not."""
    options = PartitionOptions(objective="bytes", overlap=overlap)
    local = hs.partition(hs.load(GATHERED, format="hlo"), machine=hs.machines.h100(4), options=options)
    return sum(i.opcode == "while" for i in local.module.instructions)


def test_loops_for_products_are_tried_and_the_faster_program_is_taken() -> None:
    """The gathered operand is computed: there is a wait to hide, and the simulator says that the loop hides it."""
    simulated = {}
    for overlap in ("off", "always"):
        options = PartitionOptions(objective="bytes", overlap=overlap)
        local = hs.partition(hs.load(GATHERED, format="hlo"), machine=hs.machines.h100(4), options=options)
        simulated[overlap] = hs.simulate(local.module, hs.machines.h100(4)).time_s
    assert loops("off") == 0
    assert loops("always") == 1
    assert loops("auto") == (1 if simulated["always"] < simulated["off"] else 0)
