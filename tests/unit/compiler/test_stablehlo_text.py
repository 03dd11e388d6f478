"""The partitioned program as StableHLO: that text, compiled for the devices with no partitioner, against one device."""

from __future__ import annotations

from random import Random

import jax
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.zoo import MODELS
from benchmarks.zoo_against_xla import distance
from tests.support.program_check import check, run_local
from tests.support.random_programs.programs import random_program

MATMUL = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0), sharding={devices=[1,4]<=[4]}
  w = f32[16,12] parameter(1), sharding={devices=[4,1]<=[4]}
  ROOT y = f32[8,12] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[4,1]<=[4]}
}"""


NAMES = (
    "transformer, tensor", "transformer, FSDP in a scan", "MoE, sorted dispatch", "ResNet, data and rows",
    "DLRM, rows split", "LSTM in a scan", "nets in a conditional",
)  # fmt: skip


def test_a_text_of_local_shapes_and_collectives() -> None:
    text = hs.partition(hs.load(MATMUL, format="hlo")).to_stablehlo_text()
    assert "mhlo.num_partitions = 4" in text
    assert "%arg0: tensor<8x4xf32>, %arg1: tensor<4x12xf32>) -> tensor<2x12xf32>" in text
    assert "stablehlo.reduce_scatter" in text
    assert "sharding" not in text.replace("hlosharding.cause", "")


def test_the_text_loads_as_what_it_is() -> None:
    local = hs.partition(hs.load(MATMUL, format="hlo"))
    again = hs.load(local.to_stablehlo_text())
    assert again.num_partitions == 4
    assert [c.kind for c in hs.collectives(again)] == [c.kind for c in local.collectives]
    assert sum(c.bytes_per_device for c in hs.collectives(again)) == local.comm_bytes_per_device


@pytest.mark.parametrize("seed", range(100, 120))
def test_random_programs_by_their_text(seed: int) -> None:
    check(random_program(Random(seed)), how="stablehlo")


def test_a_random_program_by_its_text() -> None:
    check(random_program(Random(7), devices=6), how="stablehlo")


@pytest.mark.parametrize("name", NAMES)
def test_models_by_their_text(name: str) -> None:
    model = next(m for m in MODELS if m.name == name)
    program, twin = model.build(model.mesh(), 1), model.build(model.mesh(alone=True), 1)
    stages = hs.jit(program.function, mesh=model.mesh(), **program.options).trace(*program.arguments)
    local = stages.propagate().partition().partitioned
    given = [np.asarray(a) for a in local.flatten(program.arguments, {})]
    wanted = jax.tree.leaves(jax.jit(twin.function, **twin.options)(*twin.arguments))
    for found, want in zip(run_local(local, given, as_text=True), wanted, strict=True):
        assert distance(found, want) <= (1e-4 if model.is_long else 1e-5)
