"""Every example's training step under `hs.jit` on eight devices: right against one device's run, and as it is sold."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import Mesh

import hlosharding as hs
from examples import devices
from tests.examples.test_models import conv_net_losses, gpt2_losses, nnx_losses

STEPS = 3


@pytest.mark.parametrize("losses", [gpt2_losses, conv_net_losses, nnx_losses])
def test_hs_jit_trains_as_one_device_does(losses: Callable[..., Any], mesh_2x4: Mesh) -> None:
    def sharded(step: Any, **options: Any) -> Any:
        return hs.jit(step, mesh=mesh_2x4, **options)

    many = list(islice(losses(mesh_2x4, sharded), STEPS))
    one = list(islice(losses(devices.one_device()), STEPS))
    np.testing.assert_allclose(many, one, rtol=1e-4)


def test_the_main_job_needs_at_most_six_annotations() -> None:
    source = Path(__file__).resolve().parents[2] / "examples" / "models" / "gpt2.py"
    assert source.read_text().count("with_sharding_constraint(") <= 6
