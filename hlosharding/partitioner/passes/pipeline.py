"""The passes that end a partition, in order.

Floor: partitioner.
"""

from __future__ import annotations

from hlosharding.errors import ModuleError
from hlosharding.ir import Module, Pass, Property, rewrite
from hlosharding.partitioner.passes.condition_sync import verify_and_sync
from hlosharding.partitioner.passes.loop_carries import sink_constants
from hlosharding.partitioner.passes.loop_invariants import hoist_invariants
from hlosharding.partitioner.passes.scattered_sums import scatter_sums, transpose_parts
from hlosharding.partitioner.passes.shared_strips import share_strips
from hlosharding.partitioner.prices import Prices
from hlosharding.spmd import Program, verify_partitioned


def _check_ids(module: Module) -> None:
    if [i.id for i in module.instructions] != list(range(len(module.instructions))):
        raise ModuleError("instruction ids are not dense")


DENSE_IDS = Property("ids are dense", _check_ids)
LAWFUL = Property("it obeys the laws of per-device programs", verify_partitioned)


def per_device_passes(program: Program, prices: Prices, *, has_manual_groups: bool) -> tuple[Pass, ...]:
    """Passes over what the walk wrote into `program`."""

    def hoist(module: Module) -> None:
        hoist_invariants(module, prices, program.partial_sums)

    def verify(module: Module) -> None:
        verify_and_sync(module, program, has_manual_groups=has_manual_groups)

    return (
        Pass(name="dead-code", run=_drop_dead_code, ensures=(DENSE_IDS,)),
        Pass(name="shared-strips", run=share_strips, requires=(DENSE_IDS,), ensures=(DENSE_IDS,)),
        Pass(name="scattered-sums", run=scatter_sums, requires=(DENSE_IDS,), ensures=(DENSE_IDS,)),
        Pass(name="loop-constants", run=sink_constants, requires=(DENSE_IDS,), ensures=(DENSE_IDS,)),
        # The reduce-scatters that it looks for are those of `scattered-sums`, too.
        Pass(name="late-transposes", run=transpose_parts, requires=(DENSE_IDS,), ensures=(DENSE_IDS,)),
        Pass(name="loop-invariants", run=hoist, requires=(DENSE_IDS,), ensures=(DENSE_IDS,)),
        # Last: what is verified is what will run.
        Pass(name="condition-sync", run=verify, requires=(DENSE_IDS,), ensures=(DENSE_IDS, LAWFUL)),
    )


def _drop_dead_code(module: Module) -> None:
    rewrite.dead_code(module)
    module.renumber()
