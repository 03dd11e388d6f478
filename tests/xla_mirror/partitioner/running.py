"""Partitions a case with its shardings as given, runs it on CPU devices and holds it against one device's run.

Values of manual regions, and values on one device, need tiles of their own; all else is `program_check`'s.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hlosharding as hs
from hlosharding.compiler import Partitioned, best_program
from hlosharding.cost import cost
from hlosharding.ir import Module, Shape
from hlosharding.partitioner import PartitionOptions
from hlosharding.sharding import HloSharding
from hlosharding.spmd import collectives
from hlosharding.xla_bridge import run_proto
from tests.support.program_check import (
    WrongResult,
    difference,
    garbage,
    is_close,
    is_no_worse,
    joined,
    one_device,
    tiles,
    wide,
    widened,
)
from tests.xla_mirror.partitioner.calls import calls_any, with_calls_written_out
from tests.xla_mirror.partitioner.cases import Case

Arrays = list[np.ndarray]

# What `manual.hlo.txt` calls: each matrix of a batch by itself.
hs.register_rule("mirrored_batched_call", "b m n -> b m n", need_replication_factors=("m", "n"))


@dataclass(frozen=True)
class Figures:
    """What a local module costs a device."""

    received_bytes: float
    flops: float
    """Arithmetic on numbers.  What picks, masks and addresses is none: on arrays this small it would hide the rest."""


_PICKING = frozenset({"select", "compare", "clamp"})


def figures(module: Module) -> Figures:
    """Of any local module, XLA's or ours."""
    report = cost(module)
    rows = (r for r in report.rows if r.instruction.opcode not in _PICKING)
    flops = sum(r.flops for r in rows if r.instruction.opcode == "sort" or _counts(r.instruction.shape.leaves[0]))
    return Figures(sum(c.bytes_per_device for c in collectives(module)), flops)


def _counts(shape: Shape) -> bool:
    return shape.is_array and shape.dtype.kind not in "iub"


def loaded(text: str, devices: int) -> Module:
    """The module as its text says it."""
    module = hs.load(text, format="hlo")
    module.num_partitions = devices
    return module


def partitioned(case: Case, *, overlap: str = "off") -> Partitioned:
    """The case's module for its devices; nothing is propagated."""
    module = loaded(case.hlo, case.devices)
    machine = hs.machines.h100(case.devices)
    options = PartitionOptions(objective="bytes", overlap=overlap)
    local = best_program(module, num_partitions=case.devices, machine=machine, options=options)
    return Partitioned(local, module, machine, None)


# Arguments


def arguments_of(case: Case) -> Arrays:
    """Values for the parameters, the same each time; integers stray over the ends of small arrays."""
    if case.is_random:
        return [np.asarray(-5, np.int32), np.asarray(1 << 30, np.int32)]
    seed = np.random.default_rng(zlib.crc32(case.name.encode()))
    text = case.meaning_hlo or case.hlo
    found = [_values(seed, p.shape) for p in loaded(text, case.devices).entry.parameters]
    return [_definite(a) for a in found] if case.is_definite else found


def _definite(array: np.ndarray) -> np.ndarray:
    return array @ array.swapaxes(-1, -2) + array.shape[-1] * np.eye(array.shape[-1], dtype=array.dtype)


def _values(seed: np.random.Generator, shape: Shape) -> np.ndarray:
    kind = shape.dtype.kind
    if kind in "iu":
        return seed.integers(-2 if kind == "i" else 0, 9, shape.dims).astype(shape.dtype)
    if kind == "b":
        return np.asarray(seed.integers(0, 2, shape.dims), bool)
    return np.asarray(seed.standard_normal(shape.dims)).astype(shape.dtype)


# Tiles


def data_view(sharding: HloSharding) -> HloSharding:
    """How the sharding cuts the data where members of a manual group hold the same."""
    if sharding.is_manual() or sharding.is_unknown():
        return HloSharding.replicate()
    if not sharding.subgroup_types:
        return sharding
    assert sharding.tile_assignment is not None, "only tiles have subgroups"
    array = sharding.tile_assignment.array
    data = array.ndim - len(sharding.subgroup_types)
    return HloSharding.partial_tile(array.reshape((*array.shape[:data], -1)))


def cut(array: np.ndarray, sharding: HloSharding, devices: int) -> Arrays:
    """What each device is given of a parameter."""
    if sharding.is_maximal():
        return [array if d == sharding.device else garbage(array.shape, array.dtype) for d in range(devices)]
    return tiles(array, data_view(sharding), devices)


def put_together(copies: Sequence[np.ndarray], sharding: HloSharding, shape: Shape) -> np.ndarray:
    """The global array that the devices hold."""
    if sharding.is_maximal():
        return copies[sharding.device or 0]
    return joined(copies, data_view(sharding), shape)


def run_local(local: Partitioned, shapes: Sequence[Shape], arguments: Arrays) -> Arrays:
    """The local module as it stands, on XLA's CPU devices; `shapes`: the outputs'."""
    module, devices = local.module, local.num_partitions
    whole = HloSharding.replicate()
    given = [
        cut(array, module.sharding(p) or whole, devices)
        for array, p in zip(arguments, module.entry.parameters, strict=True)
    ]
    outputs = run_proto(_runnable(module).to_hlo_proto(), given, devices)
    sharding = module.sharding(module.entry.root) or whole
    leaves = sharding.leaves if sharding.is_tuple() else (sharding,) * len(shapes)
    return [put_together(o, s, shape) for o, s, shape in zip(outputs, leaves, shapes, strict=True)]


def _runnable(module: Module) -> Module:
    """The module with its custom calls written out, if there are any of ours."""
    return loaded(with_calls_written_out(module.to_hlo_text()), module.num_partitions) if calls_any(module) else module


def _check_numbers(found: Arrays, low: np.ndarray, high: np.ndarray) -> None:
    for numbers in found:
        if np.unique(numbers).size < numbers.size or not ((low <= numbers) & (numbers < high)).all():
            raise WrongResult(f"no random numbers from {low} to {high}: {numbers}")


def check(case: Case, local: Partitioned) -> None:
    """Raises WrongResult where the partitioned program computes something else."""
    meaning = _runnable(loaded(case.meaning_hlo or case.hlo, case.devices))
    arguments, shapes = arguments_of(case), meaning.entry.root.shape.leaves
    if case.is_random:
        _check_numbers(run_local(local, shapes, arguments), *arguments)
        return
    found = run_local(local, shapes, arguments)
    expected = one_device(meaning, arguments)
    exact: Arrays | None = None
    for number, (got, want) in enumerate(zip(found, expected, strict=True)):
        if is_close(got, want):
            continue
        exact = exact or one_device(widened(meaning), [wide(a) for a in arguments])
        if not is_no_worse(got, want, exact[number]):
            raise WrongResult(difference(meaning, number, got, want))
