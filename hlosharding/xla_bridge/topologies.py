"""Devices that are described, not there: XLA compiles for them, and nothing runs on them.

Floor: ground.  What a description says is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.errors import ExecutionError
from hlosharding.xla_bridge.conversions import hlo_proto_to_stablehlo
from hlosharding.xla_bridge.private import FATAL, compile_options, first_import, jaxlib

_COMPILE_ONLY = "compile_only_runtime"
_INSTALL = "pip install 'hlosharding[cuda12]' (the plugin of this JAX's version; it needs no GPU)"


def described_devices(target_config: str, topology: str) -> tuple[Any, ...]:
    """Devices of `target_config`, the text of a GpuTargetConfigProto; `topology` as \"1x2x8\": 2 hosts of 8.

    Raises ExecutionError where JAX has no CUDA plugin, and where XLA cannot read the text.
    """
    from jax.experimental import topologies

    try:
        found = topologies.get_topology_desc(platform="cuda", target_config=target_config, topology=topology)
    except FATAL as error:
        if isinstance(error, NotImplementedError) or not has_cuda_plugin():
            raise ExecutionError("this JAX has no compiler for NVIDIA GPUs", remedy=_INSTALL) from error
        raise ExecutionError(f"XLA takes no such GPUs: {str(error)[:2000]}") from error
    return tuple(found.devices)


def has_cuda_plugin() -> bool:
    """Can this JAX compile for NVIDIA GPUs?"""
    import importlib.util

    return any(importlib.util.find_spec(f"jax_cuda{version}_plugin") is not None for version in (12, 13))


def is_described(device: Any) -> bool:
    """Is a device only described, so that nothing runs on it?"""
    return getattr(getattr(device, "client", None), "runtime_type", None) == _COMPILE_ONLY


def compile_with_gspmd(
    proto: bytes,
    devices: Sequence[Any],
    *,
    to_parameters: Sequence[bool] = (False,),
    to_outputs: Sequence[bool] = (False,),
) -> tuple[str, Any]:
    """The HLO that XLA makes of a module with shardings, by its own partitioner, and its memory analysis; nothing runs.

    `to_parameters`, `to_outputs`: may propagation choose their shardings?  Raises ExecutionError.
    """
    options = compile_options(devices)
    build = options.executable_build_options
    build.use_spmd_partitioning, build.use_shardy_partitioner = True, False
    build.allow_spmd_sharding_propagation_to_parameters = list(to_parameters)
    build.allow_spmd_sharding_propagation_to_output = list(to_outputs)
    text, client = hlo_proto_to_stablehlo(proto), devices[0].client
    compiled = client.compile if is_described(devices[0]) else client.compile_and_load
    try:
        with first_import("jax._src.interpreters.mlir").make_ir_context():
            program = first_import("jaxlib.mlir.ir").Module.parse(text)
            executable = compiled(program, jaxlib().DeviceList(tuple(devices)), options)
        return executable.hlo_modules()[0].to_string(), executable.get_compiled_memory_stats()
    except FATAL as error:
        raise ExecutionError(f"XLA could not compile the module: {str(error)[:2000]}") from error
