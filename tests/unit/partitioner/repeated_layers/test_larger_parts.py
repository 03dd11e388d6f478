"""A program with a few of its layers, and with one more: together they say what it comes to with all."""

from __future__ import annotations

import pytest

import hlosharding as hs
from benchmarks.deep_models import ARCHITECTURES
from benchmarks.graphs import Graph
from hlosharding.compiler.alternatives import Alternative
from hlosharding.ir import Module
from hlosharding.partitioner import (
    Decisions,
    Prices,
    ShardingTable,
    folded,
    in_plain_forms,
    partition_module,
    propagated_table,
)

MACHINE = hs.machines.h100(8)
PRICES = Prices(MACHINE, "time")


def made(module: Module, table: ShardingTable) -> Alternative:
    decisions = Decisions(PRICES)
    return Alternative(partition_module(module, table, decisions, num_partitions=8), table, decisions)


@pytest.mark.parametrize(("architecture", "layers"), [("GPT-2", 24), ("experts", 24), ("encoder-decoder", 40)])
def test_what_one_layer_adds_all_add(architecture: str, layers: int) -> None:
    propagated = Graph.of(ARCHITECTURES[architecture](layers)).propagate()
    module, annotated = in_plain_forms(propagated.module), frozenset(propagated.annotated)
    part = folded(module, annotated)
    assert part is not None
    table = part.table(own := propagated_table(part.module, annotated, 8, PRICES))
    whole, one = made(module, table), made(part.module, own)
    one.larger = [(count, made(more.module, more.part_of(table))) for count, more in part.larger]
    assert one.cost.flops < 0.6 * whole.cost.flops
    assert one.flops == pytest.approx(whole.flops, rel=1e-9)
    assert one.comm_bytes == pytest.approx(whole.comm_bytes, rel=1e-9)
    assert one.figures.collectives == whole.figures.collectives
    # What hides behind what is not the same in each layer.
    assert one.seconds == pytest.approx(whole.seconds, rel=0.07)
    assert one.most_bytes == pytest.approx(whole.most_bytes, rel=1e-9)
