"""What XLA makes of a program for given devices, there or only described: its HLO, its memory, its collectives.

Floor: compiler.  XLA compiles; here its answers are read, of our program and of its own by the same eyes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from hlosharding import xla_bridge
from hlosharding.compiler.partitioned import Partitioned
from hlosharding.errors import ExecutionError
from hlosharding.frontends import load
from hlosharding.ir import Module
from hlosharding.spmd import Collective, collectives


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """XLA's own memory analysis: bytes of one device."""

    arguments: int
    outputs: int
    aliased: int
    """Outputs that lie in the buffers of donated arguments."""
    temporaries: int
    peak: int
    """Most bytes that are taken at once."""

    @classmethod
    def of(cls, stats: Any) -> MemoryUse:
        """Of what `memory_analysis()` of a compiled function gives."""
        arguments, outputs = stats.argument_size_in_bytes, stats.output_size_in_bytes
        aliased, temporaries = stats.alias_size_in_bytes, stats.temp_size_in_bytes
        # Where XLA does not tell it (no such field, or 0): no more than all of them can be taken at once.
        peak = getattr(stats, "peak_memory_in_bytes", 0) or arguments + outputs + temporaries - aliased
        return cls(arguments, outputs, aliased, temporaries, peak)


MEMORY_PARTS = tuple(field.name for field in fields(MemoryUse))


@dataclass(frozen=True)
class OptimizedProgram:
    """A program as XLA's executable has it."""

    text: str
    """Its HLO, scheduled."""
    memory: MemoryUse

    @classmethod
    def of(cls, compiled: Any) -> OptimizedProgram:
        """Of a compiled function: JAX's `jax.stages.Compiled`, or ours.

        >>> import jax
        >>> OptimizedProgram.of(jax.jit(lambda x: 2 * x).lower(1.0).compile()).collectives
        []
        """
        stats = compiled.memory_analysis()
        if stats is None:
            raise ExecutionError("XLA gives no memory analysis on these devices", remedy="compile for others")
        return cls(compiled.as_text(), MemoryUse.of(stats))

    @cached_property
    def module(self) -> Module:
        """As our own loader reads it."""
        return load(self.text, format="hlo")

    @cached_property
    def collectives(self) -> list[Collective]:
        """Those of one run, whatever XLA joined, split or made asynchronous."""
        return collectives(self.module)

    @property
    def comm_bytes_per_device(self) -> float:
        """Bytes received in a run, mean over devices."""
        return sum(c.bytes_per_device for c in self.collectives)


def compile_for(partitioned: Partitioned, devices: Sequence[Any]) -> OptimizedProgram:
    """Our program, compiled by XLA for `devices`.  Raises ExecutionError.

    >>> import jax, hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> compile_for(hs.partition(hs.load(text)), jax.devices()[:1]).memory.arguments
    32
    """
    return OptimizedProgram.of(partitioned.compile(devices).executable.compiled)


def compile_by_xla(
    module: Module,
    devices: Sequence[Any],
    *,
    to_parameters: Sequence[bool] = (False,),
    to_outputs: Sequence[bool] = (False,),
) -> OptimizedProgram:
    """The same program, not split yet, by XLA's own propagation and partitioner.  Raises ExecutionError."""
    text, stats = xla_bridge.compile_with_gspmd(
        module.to_hlo_proto(), devices, to_parameters=to_parameters, to_outputs=to_outputs
    )
    return OptimizedProgram(text, MemoryUse.of(stats))
