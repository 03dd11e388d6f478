"""The stages of `hs.jit`: traced, propagated, partitioned, compiled.  Each can be looked at, each leads to the next.

Floor: compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.compiler.partitioned import Partitioned, partition
from hlosharding.cost import Machine
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Explanation, Propagation, propagate
from hlosharding.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class Traced:
    """A function traced for given shapes; `module` is its HLO with the annotations put on."""

    module: Module
    donated: tuple[int, ...] = ()
    """Numbers of the flat parameters whose buffers may be reused."""
    devices: tuple[Any, ...] | None = None
    """Those of the mesh; None: JAX's own."""

    def propagate(self) -> PropagatedStage:
        """Find a sharding for every value; open inputs and outputs are chosen too."""
        signature = self.module.signature
        assert signature is not None, "a traced module has one"
        found = propagate(self.module, to_outputs=signature.open_outputs, to_parameters=signature.open_parameters)
        return PropagatedStage(found, self.donated, self.devices)

    def lower(self) -> PartitionedStage:
        """Propagate and partition in one step, under the name JAX gives it: `f.trace(x).lower().compile()`."""
        return self.propagate().partition()

    def as_text(self) -> str:
        """HLO text."""
        return self.module.to_hlo_text()


@dataclass(frozen=True, slots=True)
class PropagatedStage:
    """Every value has its sharding."""

    propagation: Propagation
    donated: tuple[int, ...] = ()
    devices: tuple[Any, ...] | None = None

    @property
    def module(self) -> Module:
        """The module with all shardings."""
        return self.propagation.module

    @property
    def shardings(self) -> dict[str, HloSharding | None]:
        """Instruction name -> sharding or None."""
        return self.propagation.shardings

    def explain(self, name: str) -> Explanation:
        """Why a value has its sharding."""
        return self.propagation.explain(name)

    def partition(self, *, machine: Machine | None = None, options: PartitionOptions | None = None) -> PartitionedStage:
        """Rewrite to per-device shapes."""
        local = partition(self.propagation, machine=machine, options=options)
        return PartitionedStage(local, self.donated, self.devices)

    def as_text(self) -> str:
        """HLO text with shardings."""
        return self.module.to_hlo_text()


@dataclass(frozen=True, slots=True)
class PartitionedStage:
    """The per-device program; `partitioned` answers questions about cost."""

    partitioned: Partitioned
    donated: tuple[int, ...] = ()
    devices: tuple[Any, ...] | None = None

    @property
    def module(self) -> Module:
        """The local module."""
        return self.partitioned.module

    def as_python(self) -> str:
        """Source of the `jax.shard_map` program."""
        return self.partitioned.as_python()

    def as_text(self) -> str:
        """Local HLO text."""
        return self.partitioned.to_hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        """Figures per device and run, under the keys jax uses, with the bytes received beside them."""
        cost = self.partitioned.cost
        return {"flops": cost.flops, "bytes received": cost.comm_bytes, "seconds": cost.time_s}

    def compile(self, devices: Sequence[Any] | None = None) -> Compiled:
        """Make it executable on `devices` (default: those of the mesh)."""
        found = self.devices if devices is None else devices
        return Compiled(self.partitioned, self.partitioned.compile(found, donate=self.donated))


@dataclass(frozen=True, slots=True)
class Compiled:
    """An executable; call it with the traced function's arguments."""

    partitioned: Partitioned
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    def as_python(self) -> str:
        """Source of the program that runs."""
        return self.partitioned.as_python()

    def as_text(self) -> str:
        """Local HLO text."""
        return self.partitioned.to_hlo_text()

    @property
    def input_shardings(self) -> tuple[HloSharding | None, ...]:
        """Per flat input."""
        module = self.partitioned.module
        return tuple(module.sharding(p) for p in module.entry.parameters)

    @property
    def output_shardings(self) -> tuple[HloSharding, ...]:
        """Per flat output."""
        sharding = self.partitioned.module.sharding(self.partitioned.module.entry.root)
        return sharding.leaves if sharding is not None else ()
