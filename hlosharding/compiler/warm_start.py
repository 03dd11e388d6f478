"""A program that was partitioned and compiled before, perhaps by another process, is read and not made again.

Floor: compiler.  Which programs are equal and how they lie on disk is the business of `program_cache`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hlosharding.compiler.partitioned import Partitioned, partition, prices_of
from hlosharding.compiler.program_cache import ProgramCache, program_key
from hlosharding.cost import Machine, Topology
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Propagation, propagate

Keep = Callable[[float], None]
"""Called when a program is compiled, with the seconds that took: another process need not partition it again."""


def partitioned_once(
    source: Module | Propagation,
    *,
    machine: Machine | Topology | None = None,
    options: PartitionOptions | None = None,
) -> tuple[Partitioned, Keep]:
    """As `partition`, and what keeps the program.  Of a module whose program is read nothing is propagated."""
    cache = ProgramCache.of_jax()
    if cache is None:
        return partition(source, machine=machine, options=options), _kept_nowhere
    module = source.module if isinstance(source, Propagation) else source
    annotated = source.annotated if isinstance(source, Propagation) else None
    prices = prices_of(machine, module.num_partitions, module)
    key = program_key(module, prices, options, annotated=annotated)
    known = cache.read(key, module) if key is not None else None
    if known is not None:
        why = source if isinstance(source, Propagation) else lambda: propagate(module)
        return Partitioned(known, module, prices, why, options), _kept_nowhere
    start = time.perf_counter()
    made = partition(source, machine=machine, options=options)
    seconds = time.perf_counter() - start
    if key is None:
        return made, _kept_nowhere
    return made, lambda compiling: cache.write(key, made.local, seconds + compiling)


def _kept_nowhere(_seconds: float) -> None:
    pass
