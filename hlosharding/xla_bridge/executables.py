"""What JAX's compilation cache keeps: an executable's name there, and a program made of it without lowering anything.

Floor: ground.  Where a JAX lacks one of the names there is no executable to be had: programs are lowered, slower and
the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hlosharding.once import once
from hlosharding.xla_bridge.private import FATAL, first_import, jaxlib

_LACKING = (*FATAL, AttributeError, KeyError, OSError)
_NAME = re.compile(r"[\w.<>-]{1,200}-[0-9a-f]{64}")
"""A file of JAX's cache and nothing else: no way into another folder."""


@dataclass(frozen=True, slots=True)
class FlatProgram:
    """What JAX knows of a compiled program beside XLA's executable: flat arrays in, a tuple of arrays out."""

    name: str
    devices: tuple[Any, ...]
    """Partition i runs on the i-th."""
    inputs: Sequence[Any]
    """`jax.ShapeDtypeStruct`, with shardings."""
    outputs: Sequence[Any]
    donated: Sequence[int]
    compiler_options: Mapping[str, Any]


def compilation_key(devices: Sequence[Any], compiler_options: Mapping[str, Any]) -> str | None:
    """Equal where JAX would find an executable again: devices, XLA's flags and options, versions; None: it keeps none.

    It is the key of a program that does nothing.
    """
    ir = first_import("jaxlib.mlir.ir")
    try:
        return _key(ir.Module.parse("module @nothing {}", ir.Context()), _options(devices, compiler_options), devices)
    except _LACKING:
        return None


@dataclass(frozen=True, slots=True)
class StoredExecutable:
    """One in JAX's compilation cache."""

    name: str
    taken: tuple[int, ...]
    """Of the program's inputs those that it reads: JAX hands over no others."""


def stored_executable(
    lowered: Any, devices: Sequence[Any], compiler_options: Mapping[str, Any]
) -> StoredExecutable | None:
    """Where JAX's cache keeps what a `jax.stages.Lowered` was compiled to; None where it does not.

    Host callbacks and constants that are handed over in each call are not part of an executable.
    """
    cache = first_import("jax._src.compilation_cache")
    try:
        lowering = lowered._lowering
        given = lowering.compile_args
        is_more = given["host_callbacks"] or given["mut"] or given["ordered_effects"] or list(lowering.const_args)
        if is_more or tuple(lowering._device_list) != tuple(devices):
            return None
        module = lowering.stablehlo()
        # JAX sets this option by the module's size, and its key depends on it.
        is_logged = first_import("jax._src.compiler").use_detailed_logging(module)
        sides = len(given["global_in_avals"]), len(given["global_out_avals"])
        name = _key(module, _options(devices, compiler_options, *sides, is_logged=is_logged), devices)
        is_kept = _NAME.fullmatch(name) and cache.is_executable_in_cache(devices[0].client, name)
        return StoredExecutable(name, tuple(sorted(given["kept_var_idx"]))) if is_kept else None
    except _LACKING:
        return None


def read_executable(stored: StoredExecutable, program: FlatProgram) -> Any:
    """The `jax.stages.Compiled` of an executable that JAX's cache keeps; None where it has none of that name."""
    cache = first_import("jax._src.compilation_cache")
    if not _NAME.fullmatch(stored.name):
        return None
    try:
        options = _options(program.devices, program.compiler_options, len(stored.taken), len(program.outputs))
        listed = jaxlib().DeviceList(program.devices)
        found, _ = cache.get_executable_and_time(stored.name, options, program.devices[0].client, listed)
        return None if found is None else _compiled(found, stored.taken, program, listed)
    except _LACKING:
        return None


def _key(module: Any, options: Any, devices: Sequence[Any]) -> str:
    get = first_import("jax._src.compilation_cache").get_cache_key
    return get(module, np.array(devices, dtype=object), options, devices[0].client)


def _options(
    devices: Sequence[Any], given: Mapping[str, Any], inputs: int = 0, outputs: int = 0, *, is_logged: bool = False
) -> Any:
    """XLA's options as JAX sets them for so many inputs and outputs, of which all shardings are given."""
    made = first_import("jax._src.compiler").get_compile_options(
        num_replicas=1,
        num_partitions=len(devices),
        device_assignment=np.array(devices, dtype=object).reshape(1, -1),
        env_options_overrides=dict(given),
        detailed_logging=is_logged,
        backend=devices[0].client,
    )
    made.parameter_is_tupled_arguments = False
    build = made.executable_build_options
    build.allow_spmd_sharding_propagation_to_parameters = [False] * inputs
    build.allow_spmd_sharding_propagation_to_output = [False] * outputs
    return made


def _compiled(executable: Any, taken: Sequence[int], program: FlatProgram, listed: Any) -> Any:
    import jax

    pxla = first_import("jax._src.interpreters.pxla")
    given = [program.inputs[number] for number in taken]
    inputs, outputs = _avals(given), _avals(program.outputs)
    ins, outs = ([a.sharding for a in side] for side in (given, program.outputs))
    open_in, open_out = [None] * len(ins), [None] * len(outs)
    layouts = pxla._get_layouts_from_executable(executable, open_in, open_out, 0, inputs, outputs)
    known: dict[str, Any] = {
        "xla_executable": executable,
        "device_list": listed,
        "backend": program.devices[0].client,
        "input_avals": inputs,
        "input_shardings": ins,
        "output_avals": outputs,
        "output_shardings": outs,
        "committed": True,
        "name": program.name,
        "unordered_effects": [],
        "ordered_effects": [],
        "keepalive": [],
        "host_callbacks": [],
        "kept_var_idx": set(taken),
        "mut": None,
        "auto_spmd_lowering": False,
        "xla_in_layouts": layouts[0],
        "dispatch_in_layouts": pxla.get_dispatch_layouts(layouts[0], ins, inputs),
        "xla_out_layouts": layouts[1],
        "all_args_info": None,
        "pgle_profiler": None,
    }
    kind = pxla.UnloadedMeshExecutable
    # Each JAX takes the fields that it has: they differ from version to version.
    loaded = kind(**{field.name: known[field.name] for field in fields(kind)}).load()
    info = first_import("jax._src.stages").ArgInfo
    infos = tuple(info(aval, number in program.donated) for number, aval in enumerate(_avals(program.inputs)))
    return jax.stages.Compiled(loaded, [], (infos, {}), jax.tree.structure((0,) * len(outs)))


def _avals(given: Sequence[Any]) -> list[Any]:
    core = first_import("jax._src.core")
    avals = (core.ShapedArray(a.shape, a.dtype, weak_type=a.weak_type) for a in given)
    return [core.update_aval_with_sharding(aval, a.sharding) for aval, a in zip(avals, given, strict=True)]


@once
def load_lapack() -> None:
    """Fill in the addresses of LAPACK's kernels, as JAX does when it first lowers one: a program that calls one before
    that would end this process."""
    first_import("jaxlib.lapack")._lapack.initialize()
