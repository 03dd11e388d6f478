"""A partitioned module, compiled and run: the very text that `source` shows, on the devices that JAX has.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.boundary import BoundaryArray, boundary_arrays
from hlosharding.executor.device_program import load_source
from hlosharding.executor.executable import Executable
from hlosharding.executor.reference import run_reference
from hlosharding.executor.source import ProgramSource, write_source
from hlosharding.ir import Module, blaming

NO_OPTIONS: Mapping[str, Any] = {}


def find_devices(number: int, devices: Sequence[Any] | None = None) -> list[Any]:
    """`devices`, or the first `number` that JAX has; ExecutionError with the remedy where there are fewer."""
    import jax

    found = list(jax.devices() if devices is None else devices)
    if len(found) < number and devices is not None:
        raise ExecutionError(f"{number} devices are needed, and {len(found)} are given", remedy="give as many")
    if len(found) < number:
        raise ExecutionError(
            f"the program is for {number} devices and there are {len(found)}",
            remedy=f"set XLA_FLAGS=--xla_force_host_platform_device_count={number} before JAX starts,"
            " or use the reference executor, which needs no devices",
        )
    return found[:number]


@dataclass(eq=False, repr=False)
class ShardMapProgram:
    """One partitioned module with its generated source.

    `module` has local shapes and explicit collectives; `inputs` and `outputs` give global shape and sharding of each
    array at the boundary (default: from the module's sharding table, all tiles even).
    """

    module: Module
    _: KW_ONLY
    inputs: Sequence[BoundaryArray] | None = None
    outputs: Sequence[BoundaryArray] | None = None
    _compiled: dict[Any, Executable] = field(default_factory=dict[Any, Executable], init=False)

    @property
    def num_devices(self) -> int:
        """That it is for."""
        return max(1, self.module.num_partitions)

    @cached_property
    def boundary(self) -> tuple[tuple[BoundaryArray, ...], tuple[BoundaryArray, ...]]:
        """Global shape and sharding of each array that enters, and of each that leaves."""
        return boundary_arrays(self.module, self.inputs, self.outputs)

    @cached_property
    def written(self) -> ProgramSource:
        """The generated source with what belongs to it."""
        with blaming(self.module):
            return write_source(self.module, inputs=self.inputs, outputs=self.outputs)

    @property
    def source(self) -> str:
        """The text that runs."""
        return self.written.text

    @cached_property
    def build(self) -> Callable[[Any], Any]:
        """`program` of the executed source: mesh -> function on global (or stacked) arrays."""
        return load_source(self.module, self.written)

    def compile(
        self,
        devices: Sequence[Any] | None = None,
        *,
        donate: Sequence[int] = (),
        compiler_options: Mapping[str, Any] = NO_OPTIONS,
        keep_unused: bool = False,
    ) -> Executable:
        """Ready to be called on jax arrays; compiled for given devices once.

        `donate`: numbers of the flat inputs whose buffers may be reused; their arrays are gone after a call.
        `keep_unused`: those that nothing reads are laid out, too.
        """
        found = find_devices(self.num_devices, devices)
        options = tuple(sorted(compiler_options.items()))
        key = (tuple(d.id for d in found), found[0].platform, tuple(sorted(donate)), options, keep_unused)
        made = self._compiled.get(key)
        if made is None:
            made = Executable(
                self.written,
                tuple(found),
                self.build,
                tuple(sorted(donate)),
                dict(options),
                self.module.signature,
                keep_unused=keep_unused,
            )
        # Two threads may both have made one: they take the first.
        return self._compiled.setdefault(key, made)

    def run(self, *arrays: Any, devices: Sequence[Any] | None = None) -> list[np.ndarray]:
        """Global arrays in (one per leaf of the entry parameters), global numpy arrays out."""
        return self.compile(devices).run(*arrays)

    def run_reference(self, *arrays: Any) -> list[np.ndarray]:
        """As `run`, by the reference executor: no mesh, one CPU device is enough."""
        return run_reference(self.module, arrays, self.num_devices, inputs=self.inputs, outputs=self.outputs)
