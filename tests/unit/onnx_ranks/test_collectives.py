"""Collectives in all forms of groups, by ONNX Runtime's three operators, against live XLA on eight CPU devices."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.errors import ModuleError
from hlosharding.ir import Module
from tests.unit.executor.op_cases import module_of
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


@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_the_largest_number_of_64_bits_without_a_sign(kind: str) -> None:
    reducer = f"of_u64 {{ a = u64[] parameter(0) b = u64[] parameter(1) ROOT r = u64[] {kind}(a, b) }}\n"
    groups = f"channel_id=1, use_global_device_ids=true, replica_groups={GROUPS['data']}, to_apply=of_u64"
    module = module_of(f"x = u64[2] parameter(0) ROOT r = u64[2] all-reduce(x), {groups}", 8, reducer)
    tiles = [np.full(2, rank + (rank % 3 == 0) * (1 << 63), np.uint64) for rank in range(8)]
    live = xla_bridge.run_proto(module.to_hlo_proto(), [tiles], 8)[0]
    for ours, theirs in zip(run_ranks(module, [[tile] for tile in tiles]), live, strict=True):
        np.testing.assert_array_equal(ours[0], theirs)
