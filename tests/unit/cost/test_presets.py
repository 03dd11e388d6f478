"""Presets by what JAX calls devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlosharding.cost import Machine, machines, preset_of_kind

TPUS = {
    "TPU v4": machines.tpu_v4p,
    "TPU v5 lite": machines.tpu_v5e,
    "TPU v5e": machines.tpu_v5e,
    "TPU v5": machines.tpu_v5p,
    "TPU v5p": machines.tpu_v5p,
    "TPU v6 lite": machines.tpu_v6e,
    "TPU v6e": machines.tpu_v6e,
    "TPU7": machines.tpu_v7,
    "TPU7x": machines.tpu_v7,
}
"""By the texts that JAX 0.10.2 takes for chips of these kinds (`tpu_info` of its Pallas)."""


@pytest.mark.parametrize(("kind", "preset"), TPUS.items())
def test_a_tpu_has_its_preset_by_each_of_its_names(kind: str, preset: Callable[[int], Machine]) -> None:
    assert preset_of_kind(kind) is preset


@pytest.mark.parametrize("kind", ["TPU v2", "TPU v3", "cpu", "AMD Instinct MI300X"])
def test_what_is_no_preset_has_none(kind: str) -> None:
    assert preset_of_kind(kind) is None
