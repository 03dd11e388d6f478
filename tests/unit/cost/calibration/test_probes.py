"""Probes count their work as the cost of a program that does the same, and their collectives as `cost` counts them."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import machines, op_work
from hlosharding.cost.calibration import all_probes, program_probes
from hlosharding.cost.calibration.probes import ARITHMETIC, STREAM, collective_probe, launch_probe, product_probe
from hlosharding.errors import CostError


def test_a_product_is_priced_as_the_op_of_a_program() -> None:
    module = hs.trace(lambda x, y: x @ y)(jnp.ones((64, 32)), jnp.ones((32, 128)))
    op = next(i for i in module.instructions if i.opcode == "dot")
    assert product_probe(64, 32, 128).work == op_work(op)


@pytest.mark.parametrize("probe", [p for p in all_probes(1) if p.kind in (STREAM, ARITHMETIC)], ids=str)
def test_elementwise_ops_move_and_compute_what_they_say(probe: Any) -> None:
    module = hs.trace(probe.compute)(jax.ShapeDtypeStruct(probe.operands[0], jnp.float32))
    report = hs.cost(module)
    assert (report.flops, report.transcendentals) == (probe.work.flops, probe.work.transcendentals)
    assert probe.work.bytes == 2 * 4 * prod(probe.operands[0])  # one fusion: read once, written once


def test_collectives_are_counted_as_in_a_program() -> None:
    h100 = machines.h100(8)
    for kind, nbytes in (("all-reduce", 4096), ("all-gather", 8 * 4096), ("reduce-scatter", 4096)):
        assert collective_probe(kind, (8, 128), 8).nbytes == nbytes
    assert collective_probe("all-reduce", (8, 128), 8).predict_seconds(h100) > collective_probe(
        "all-reduce", (8, 128), 2
    ).predict_seconds(h100)


def test_groups_of_every_size() -> None:
    assert {p.group for p in all_probes(8)} == {1, 2, 4, 8}
    assert {p.group for p in all_probes(6)} == {1, 3, 6}
    assert {p.group for p in all_probes(1)} == {1}


def test_all_probes_differ() -> None:
    wanted = all_probes(8)
    assert len(set(wanted)) == len(wanted)


def test_the_products_of_a_program_each_once() -> None:
    def model(w: Any, k: Any, x: Any) -> Any:
        h = jnp.tanh(x @ w) @ w
        image = h.reshape(2, 4, 4, 8)
        return jax.lax.conv_general_dilated(image, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    module = hs.trace(model)(jnp.ones((8, 8)), jnp.ones((3, 3, 8, 4)), jnp.ones((32, 8)))
    found = program_probes(module)
    assert sorted(str(p) for p in found) == ["convolution f32[2,4,4,8] f32[3,3,8,4]", "product f32[32,8] f32[8,8]"]
    for probe in found:
        arrays = [jnp.ones(dims) for dims in probe.operands]
        assert probe.compute is not None
        assert probe.compute(*arrays).size > 0


def test_a_convolution_of_a_program_is_that_convolution() -> None:
    x, k = jax.random.normal(jax.random.key(0), (2, 9, 9, 4)), jax.random.normal(jax.random.key(1), (3, 3, 2, 6))

    def model(x: Any, k: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, k, (2, 1), "VALID", dimension_numbers=numbers, feature_group_count=2, rhs_dilation=(1, 2)
        )

    [probe] = program_probes(hs.trace(model)(x, k))
    assert probe.compute is not None
    assert jnp.allclose(probe.compute(x, k), model(x, k), atol=1e-5)


def test_a_program_without_products_is_refused() -> None:
    with pytest.raises(CostError, match="no matrix products"):
        program_probes(hs.trace(jnp.tanh)(jnp.ones(3)))


def test_a_launch_is_nearly_all_that_a_tiny_product_takes() -> None:
    h100 = machines.h100()
    assert launch_probe().predict_seconds(h100) == pytest.approx(h100.launch, rel=0.25)
