"""How long a probe takes on devices that JAX has, all of them busy with it at once, as in a sharded program.

Floor: cost.  Devices may share what they run on (forced CPU devices share cores): then each has its share of the rates,
and that is what is measured.  An op runs many times in a loop of one program; what the loop itself takes is measured
with ops that take next to nothing, and subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.cost.calibration.probes import CALL, LAUNCH, RANKS, Probe, launch_probe
from hlosharding.errors import CostError
from hlosharding.ir import Shape

_CHAIN = 8
"""So many tiny products more, one after the other, tell what the start of one takes: the noise of a turn of the loop is
divided by them."""
_OTHERS = "others"
_MOST_RUNS = 100_000
"""Turns of a loop: of an op of a microsecond a tenth of a second; one that is faster tells nothing more."""


class DeviceTimer:
    """Seconds of probes on some devices.

    >>> import jax
    >>> from hlosharding.cost.calibration.probes import product_probe
    >>> timer = DeviceTimer(jax.devices()[:2], seconds=0.001)
    >>> timer(product_probe(64, 64, 64)) > 0
    True
    """

    def __init__(self, devices: Sequence[Any], *, seconds: float = 0.02) -> None:
        if len({device.platform for device in devices}) != 1:
            raise CostError(f"{len(devices)} devices, which are not of one kind", remedy="give those of one kind")
        self.devices, self.seconds = list(devices), seconds
        tiny = launch_probe()
        once, often = self._in_loop(tiny), self._in_loop(tiny, 1 + _CHAIN)
        self.launch = max(often - once, 0.1 * often) / _CHAIN
        self.overhead = max(0.0, once - self.launch)
        """Of one turn of the loop."""

    def __call__(self, probe: Probe) -> float:
        """Seconds of one run of it."""
        if probe.kind == CALL:
            return self._of_a_call(probe)
        if probe.kind == LAUNCH:
            return self.launch
        measured = self._in_loop(probe)
        # Below a tenth of what was measured the difference is noise.
        return max(measured - self.overhead, 0.1 * measured)

    def _of_a_call(self, probe: Probe) -> float:
        run, arrays = self._program(probe, 1)
        return _least(lambda: run(0, *arrays), self.seconds)

    def _in_loop(self, probe: Probe, chain: int = 1) -> float:
        """Seconds of a turn of the loop with that many of the op in it, one after the other."""
        run, arrays = self._program(probe, chain)
        empty = _least(lambda: run(0, *arrays), self.seconds / 10)
        turns, taken = 1, 0.0
        # What a loop of no turns takes varies, too: those that count must take longer by far.
        while taken < max(self.seconds / 4, 2 * empty) and turns < _MOST_RUNS:
            # A short time is mostly noise: it says little of how many turns a long one takes.
            wanted = round(turns * max(self.seconds / 2, 3 * empty) / max(taken, 1e-7)) if taken > 0 else turns
            turns = min(_MOST_RUNS, 8 * turns, max(2 * turns, wanted))
            taken = _least(lambda turns=turns: run(turns, *arrays), 0.0) - empty
        taken = min(taken, _least(lambda: run(turns, *arrays), self.seconds) - empty)
        return max(taken, 0.1 * empty, 1e-9) / turns

    def _program(self, probe: Probe, chain: int) -> tuple[Callable[..., Any], list[Any]]:
        import jax

        mesh = jax.sharding.Mesh(np.array(self.devices, dtype=object).reshape(-1, probe.group), (_OTHERS, RANKS))
        spec = jax.sharding.PartitionSpec((_OTHERS, RANKS))
        turns = jax.sharding.PartitionSpec()
        body = partial(_turns, probe.compute, chain)
        specs = (turns, *(spec for _ in probe.operands))
        run = xla_bridge.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False))
        return run, [self._array(probe, dims, jax.sharding.NamedSharding(mesh, spec)) for dims in probe.operands]

    def _array(self, probe: Probe, dims: tuple[int, ...], sharding: Any) -> Any:
        import jax

        whole = np.full((len(self.devices), *dims), 0.01)
        return jax.device_put(whole.astype(Shape.array(probe.dtype, ()).dtype), sharding)


def _turns(compute: Any, chain: int, turns: Any, *tiles: Any) -> Any:
    """The op `turns` times on a device's own arrays: each result changes the next one's operand, so that none is left
    out and none can start before the last one ended."""
    import jax
    from jax import lax

    first, *others = (tile[0] for tile in tiles)

    def op(value: Any) -> Any:
        for _ in range(chain):
            value = compute(value, *others)
        return value

    def turn(_: Any, carry: Any) -> Any:
        made = op(carry[0])
        corner = lax.slice(made, (0,) * made.ndim, (1,) * made.ndim).reshape((1,) * first.ndim)
        return lax.dynamic_update_slice(carry[0], corner.astype(first.dtype), (0,) * first.ndim), made

    result = jax.eval_shape(op, first)
    carry = (first, lax.full(result.shape, 0, result.dtype))
    return [each[None] for each in lax.fori_loop(0, turns, turn, carry)]


def _least(run: Callable[[], Any], seconds: float) -> float:
    """The shortest of some runs, after one that compiles; of three at least, where `seconds` are given."""
    import jax

    jax.block_until_ready(run())
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < (3 if seconds else 1) or (perf_counter() < end and len(times) < 50):
        start = perf_counter()
        jax.block_until_ready(run())
        times.append(perf_counter() - start)
    return min(times)
