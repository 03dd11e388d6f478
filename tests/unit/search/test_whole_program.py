"""Annotations for a program that has none: few, and its program takes what the optimum's does."""

from __future__ import annotations

from importlib import import_module

import pytest

import hlosharding as hs
from benchmarks.zoo import MODELS
from benchmarks.zoo_optima import unannotated
from hlosharding.search import find_optimum
from hlosharding.sharding import MeshInfo

whole_program = import_module("hlosharding.search.whole_program")


@pytest.mark.parametrize("name", ["transformer, data", "DLRM, rows split"])
def test_few_inner_values_are_named(name: str) -> None:
    [model] = [model for model in MODELS if model.name == name]
    module, machine, mesh = unannotated(model, 1), hs.machines.h100(8), MeshInfo(("x",), (8,))
    found = whole_program.find_annotations(module, machine, mesh)
    best = find_optimum(module, machine, mesh)
    inner = found.keys() - {parameter.name for parameter in module.entry.parameters}
    assert len(inner) <= 0.02 * len(module.instructions)
    program = hs.partition(hs.annotate(module, found, mesh=mesh), num_partitions=8, machine=machine)
    assert hs.simulate(program.module, machine).time_s <= 1.01 * best.time_s
