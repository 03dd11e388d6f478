"""Running a module as it stands, on CPU devices.

Floor: ground.  Collectives are the explicit ones of the module; no SPMD pass runs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.xla_bridge.conversions import hlo_proto_to_stablehlo, without_shardings
from hlosharding.xla_bridge.private import FATAL, compile_options, first_import, jaxlib

_PASSES_OFF = "sharding-propagation,spmd-partitioning"


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A compiled HLO module on `num_devices` CPU devices, each of which runs the same local program."""

    executable: Any
    devices: tuple[Any, ...]

    def run(self, arguments: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
        """Outputs [output][device]; `arguments` [parameter][device] are local arrays of the parameters' shapes."""
        for number, copies in enumerate(arguments):
            if len(copies) != len(self.devices):
                raise ExecutionError(
                    f"parameter {number} has {len(copies)} local arrays for {len(self.devices)} devices"
                )
        import jax

        with _wide():
            buffers = [self._put(copies) for copies in arguments]
            try:
                outputs = self.executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
                # The run is asynchronous: what went wrong in it is told here.
                return [[np.asarray(jax.device_get(copy)) for copy in output] for output in outputs]
            except FATAL as error:
                raise ExecutionError(f"XLA could not run the module: {str(error)[:2000]}") from error

    def _put(self, copies: Sequence[Any]) -> Any:
        # "Replicated" with a different value on each device: the executable only looks at the buffers.
        import jax

        mesh = jax.sharding.Mesh(np.array(self.devices), ("device",))
        replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        arrays = [jax.device_put(copy, device) for copy, device in zip(copies, self.devices, strict=True)]
        return jax.make_array_from_single_device_arrays(arrays[0].shape, replicated, arrays)


def _wide() -> Any:
    import jax

    public = getattr(jax, "enable_x64", None)
    return public(True) if public is not None else first_import("jax.experimental").enable_x64(True)


def cpu_devices(count: int) -> tuple[Any, ...]:
    """The first `count` CPU devices of this process; ExecutionError where there are fewer."""
    import jax

    try:
        devices = jax.local_devices(backend="cpu")
    except RuntimeError as error:
        raise ExecutionError("JAX has no CPU backend here", remedy="add cpu to JAX_PLATFORMS") from error
    if len(devices) < count:
        raise ExecutionError(
            f"{count} CPU devices are needed and this process has {len(devices)}",
            remedy=f"set XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX starts",
        )
    return tuple(devices[:count])


def compile_proto(proto: bytes, num_devices: int = 1, num_replicas: int = 1) -> CompiledModule:
    """Compile a serialized HloModuleProto as it stands for `num_devices` CPU devices; no SPMD pass runs.

    The devices are the partitions of `num_replicas` replicas.  Collectives are the explicit ones of the module.
    Shardings are dropped.  Cached.
    """
    return _compile(without_shardings(proto), num_devices, num_replicas)


@functools.lru_cache(maxsize=512)
def _compile(proto: bytes, num_devices: int, num_replicas: int) -> CompiledModule:
    devices = cpu_devices(num_devices)
    return _compiled(hlo_proto_to_stablehlo(proto), devices, _compile_options(num_replicas, devices))


def _compiled(text: str, devices: tuple[Any, ...], options: Any) -> CompiledModule:
    try:
        executable = devices[0].client.compile_and_load(text, jaxlib().DeviceList(devices), options)
    except FATAL as error:
        raise ExecutionError(f"XLA could not compile the module: {str(error)[:2000]}") from error
    return CompiledModule(executable, devices)


def _compile_options(replicas: int, devices: Sequence[Any], *, with_shardy: bool = False) -> Any:
    options = compile_options(devices, replicas)
    build = options.executable_build_options
    # XLA refuses more than one partition without the flag, so it is set and its two passes are disabled.
    build.use_spmd_partitioning = len(devices) > replicas
    build.use_shardy_partitioner = with_shardy
    if not with_shardy:
        build.debug_options.xla_disable_hlo_passes = _PASSES_OFF
    return options


def run_stablehlo(
    text: str, arguments: Sequence[Sequence[Any]], num_devices: int, *, with_shardy: bool = False
) -> list[list[np.ndarray]]:
    """Compile a StableHLO text for `num_devices` CPU devices and run it: outputs [output][device].

    By default it is what each device runs, as it stands: no partitioner.  `with_shardy`: it is the global program,
    which XLA propagates and partitions by Shardy's shardings; `arguments` are local tiles in either case.
    """
    devices = cpu_devices(num_devices)
    return _compiled(text, devices, _compile_options(1, devices, with_shardy=with_shardy)).run(arguments)


def run_proto(
    proto: bytes, arguments: Sequence[Sequence[Any]], num_devices: int = 1, num_replicas: int = 1
) -> list[list[np.ndarray]]:
    """Compile and run a module as it stands: outputs [output][device] from `arguments` [parameter][device]."""
    return compile_proto(proto, num_devices, num_replicas).run(arguments)
