"""Collectives in all forms of groups, by ONNX Runtime's three operators, against live XLA on eight CPU devices."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ModuleError
from hlosharding.ir import Module
from tests.unit.executor.test_collectives import GROUPS, OTHER, all_of, module_for, stacked_values
from tests.unit.onnx_ranks.test_ops import run_ranks


def assert_agrees(module: Module) -> None:
    tiles = [np.split(a, 8) for a in stacked_values(module)]
    live = xla_bridge.run_proto(module.to_hlo_proto(), tiles, 8)
    ours = run_ranks(module, list(zip(*tiles, strict=True)))
    for number, wanted in enumerate(live):
        for rank in range(8):
            np.testing.assert_allclose(ours[rank][number], wanted[rank], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("groups", GROUPS)
def test_groups(groups: str) -> None:
    assert_agrees(all_of(GROUPS[groups]))


@pytest.mark.parametrize("name", sorted(set(OTHER) - {"sum c64", "tuple all-to-all"}))
def test_other_forms(name: str) -> None:
    kind, body = OTHER[name]
    assert_agrees(module_for(kind, body, None))


@pytest.mark.parametrize("name", ["sum c64", "tuple all-to-all"])
def test_what_has_no_form_is_refused(name: str) -> None:
    kind, body = OTHER[name]
    with pytest.raises(ModuleError, match="cannot be written as ONNX"):
        run_ranks(module_for(kind, body, None), [[]] * 8)
