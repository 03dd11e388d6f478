"""The same programs on GPUs: one op of each family on one GPU, collectives on all that are there."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from hlosharding import xla_bridge
from hlosharding.executor import ShardMapProgram, run_reference
from hlosharding.ir import Module
from tests.unit.executor.op_cases import CASES, module_of, values

pytestmark = pytest.mark.gpu
# CPU and GPU differ by design here: what the default algorithm is, and how NaN payloads and rounding modes come out.
ELSEWHERE = frozenset({"rng-bit-generator", "custom-call", "partition-id", "replica-id"})


@pytest.mark.parametrize("opcode", sorted(set(CASES) - ELSEWHERE))
def test_emitter_on_gpu_equals_one_cpu_device(opcode: str, gpu_devices: list[Any]) -> None:
    for body in CASES[opcode][:2]:
        module = module_of(body)
        leaves = [leaf for p in module.entry.parameters for leaf in p.shape.leaves]
        arguments = [values(leaf, seed) for seed, leaf in enumerate(leaves)]
        theirs = [o[0] for o in xla_bridge.run_proto(module.to_hlo_proto(), [[a] for a in arguments])]
        ours = ShardMapProgram(module).run(*arguments, devices=gpu_devices[:1])
        for got, want in zip(ours, theirs, strict=True):
            # TF32 products, and other orders of summation.
            np.testing.assert_allclose(got.astype(complex), want.astype(complex), rtol=2e-2, atol=2e-2)


def collective(count: int) -> Module:
    body = (
        f"x = f32[4,8] parameter(0), sharding={{devices=[{count},1]<=[{count}]}}"
        " y = f32[4,8] all-reduce(x), replica_groups={}, channel_id=1, to_apply=add_f32"
        f" ROOT r = f32[{4 * count},8] all-gather(y), dimensions={{0}}, channel_id=2, use_global_device_ids=true,"
        f" replica_groups={{{{{','.join(map(str, range(count)))}}}}}"
    )
    return module_of(body, count)


def test_collectives_on_all_gpus(gpu_devices: list[Any]) -> None:
    count = len(gpu_devices)
    module = collective(count)
    x = np.random.default_rng(0).normal(size=(4 * count, 8)).astype(np.float32)
    (out,) = ShardMapProgram(module).run(x, devices=gpu_devices)
    np.testing.assert_allclose(out, run_reference(module, [x])[0], rtol=1e-5)
    assert jax.devices("cuda") == gpu_devices
