"""What tables of shardings cost is told before anything is built, and told right."""

from __future__ import annotations

import pytest

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.partitioner import Decisions, Prices, in_plain_forms, partition_module, sharding_tables
from hlosharding.partitioner.global_choice.cheapest_table import cheapest_table, costs_where_they_differ
from hlosharding.partitioner.global_choice.op_kinds import OpKinds
from tests.unit.partitioner.overrides.test_batch_parallel import two_layers


@pytest.mark.parametrize(("batch", "width"), [(512, 16), (1024, 16), (512, 24)])
def test_bytes_that_tables_differ_in_are_those_of_the_programs(batch: int, width: int) -> None:
    module = hs.propagate(hs.load(f"HloModule m, num_partitions=8\nENTRY e {{{two_layers(batch, width)}\n}}")).module
    module = in_plain_forms(module)
    decisions = Decisions(Prices(machines.h100(8)))
    tables = list(sharding_tables(module, frozenset(), 8))
    assert len(tables) == 2
    told = [cost.mean_bytes for cost in costs_where_they_differ(module, *tables, decisions, 8, OpKinds())]
    built = [partition_module(module, table, decisions, num_partitions=8).module for table in tables]
    sent = [hs.cost(program, machines.h100(8)).comm_bytes for program in built]
    assert told == pytest.approx(sent)
    assert cheapest_table(module, tables, decisions, 8, OpKinds()) is tables[sent.index(min(sent))]
