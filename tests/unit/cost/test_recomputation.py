"""What layers under `jax.checkpoint` keep is what XLA allocates for them, scanned and listed."""

from __future__ import annotations

import jax
import pytest

import hlosharding as hs
from benchmarks import checkpointed_layers
from benchmarks.checkpointed_layers import POLICIES, allocated, counted, decoder, perceptron

# What XLA's compiler for GPUs allocates, MB, scanned and listed: `python -m benchmarks.checkpointed_layers` with jaxlib
# 0.10.2, for an H100.
PERCEPTRON = {
    "none": (1434.5, 772.8),
    "nothing_saveable": (361.8, 303.0),
    "dots_saveable": (914.4, 772.8),
    "dots_with_no_batch_dims_saveable": (914.4, 772.8),
    "save_only_these_names": (957.4, 772.8),
}
DECODER = {"nothing_saveable": (899.2, 755.4), "dots_with_no_batch_dims_saveable": (1698.2, 1357.4)}
FORMS = pytest.mark.parametrize("is_scanned", [True, False], ids=["scanned", "listed"])
LIMIT = checkpointed_layers.LIMIT


@FORMS
@pytest.mark.parametrize("policy", PERCEPTRON)
def test_layers_keep_what_xla_recorded(policy: str, is_scanned: bool) -> None:
    theirs = PERCEPTRON[policy][0 if is_scanned else 1] * 1e6
    assert counted(perceptron(policy, is_scanned=is_scanned), "cuda").peak_memory_bytes == pytest.approx(
        theirs, rel=LIMIT
    )


@FORMS
@pytest.mark.parametrize("policy", DECODER)
def test_decoders_keep_what_xla_recorded(policy: str, is_scanned: bool) -> None:
    ours = counted(decoder(policy, is_scanned=is_scanned), "cuda").peak_memory_bytes
    assert ours == pytest.approx(DECODER[policy][0 if is_scanned else 1] * 1e6, rel=LIMIT)


@pytest.mark.parametrize("policy", ["none", "nothing_saveable", "dots_saveable", "save_only_these_names"])
def test_scanned_layers_keep_what_xla_allocates_here(policy: str) -> None:
    """Listed ones XLA's CPU compiler computes but once, whatever the policy."""
    step = perceptron(policy, is_scanned=True)
    assert counted(step, "cpu").peak_memory_bytes == pytest.approx(allocated(step, jax.devices("cpu")[0]), rel=0.03)


@pytest.mark.gpu_compiler
@FORMS
@pytest.mark.parametrize("policy", PERCEPTRON)
def test_layers_keep_what_xla_allocates_for_a_gpu(policy: str, is_scanned: bool) -> None:
    step = perceptron(policy, is_scanned=is_scanned)
    theirs = allocated(step, hs.topology("h100", 8).devices[0])
    assert counted(step, "cuda").peak_memory_bytes == pytest.approx(theirs, rel=LIMIT)


def test_every_policy_has_its_measure() -> None:
    assert {*PERCEPTRON, "save_and_offload_only_these_names"} == set(POLICIES)
