"""Small programs: HLO text with shardings, partitioned, run on eight CPU devices and compared with one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

import hlosharding as hs
from hlosharding.ir import Module, Shape
from hlosharding.partitioner import PartitionOptions
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram

REDUCERS = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
    "assign": "",
    "ge": "GE",
    "lt": "LT",
    "gt": "GT",
}


def _reducer(name: str, kind: str) -> str:
    word, head = REDUCERS[name], f"{name}_{kind} {{ a = {kind}[] parameter(0)  b = {kind}[] parameter(1)"
    if not word:
        return f"{head}  ROOT r = {kind}[] copy(b) }}"
    if word.isupper():
        return f"{head}  ROOT r = pred[] compare(a, b), direction={word} }}"
    return f"{head}  ROOT r = {kind}[] {word}(a, b) }}"


def mark(tiling: str | None) -> str:
    """A `sharding=` attribute of a tiling `[2,4]<=[8]`, with ` copies` behind it where the last dim counts copies.

    "" is replicated, None nothing at all, anything else stands as it is.
    """
    if tiling is None:
        return ""
    if tiling.startswith("["):
        tiling = "devices=" + tiling.replace(" copies", " last_tile_dim_replicate")
    return f", sharding={{{tiling or 'replicated'}}}"


def module_of(body: str, *, computations: str = "", devices: int = 8) -> Module:
    """The entry `body` as a module; computations named `add_f32`, `max_s32`, ... (see REDUCERS) are supplied."""
    wanted = sorted(set(re.findall(rf"\b({'|'.join(REDUCERS)})_([a-z]+\d*)\b", body + computations)))
    callees = "\n".join(_reducer(name, kind) for name, kind in wanted)
    text = f"HloModule small\n{callees}\n{computations}\nENTRY main {{\n{body}\n}}"
    module = hs.load(text, format="hlo")
    module.num_partitions = devices
    return module


def split(body: str, *, computations: str = "", devices: int = 8, objective: str = "time") -> hs.Partitioned:
    """The partitioned program."""
    module = module_of(body, computations=computations, devices=devices)
    return hs.partition(module, options=PartitionOptions(objective=objective))


def right(
    body: str,
    *arguments: np.ndarray,
    computations: str = "",
    devices: int = 8,
    how: str = "local",
    objective: str = "time",
) -> hs.Partitioned:
    """Partition, run on `devices` devices and compare with one; arguments not given are drawn from a fixed seed."""
    module = module_of(body, computations=computations, devices=devices)
    shapes = [p.shape for p in module.entry.parameters][len(arguments) :]
    drawn = [values(shape, seed) for seed, shape in enumerate(shapes)]
    options = PartitionOptions(objective=objective)
    return check(RandomProgram(module, (*arguments, *drawn)), how=how, options=options).partitioned


def values(shape: Shape, seed: int = 0) -> np.ndarray:
    """Small numbers, negative ones among them, the same on every run."""
    rng = np.random.default_rng(seed)
    if shape.dtype.kind == "b":
        return rng.integers(0, 2, shape.dims).astype(bool)
    if shape.dtype.kind == "c":
        return (rng.normal(size=shape.dims) + 1j * rng.normal(size=shape.dims)).astype(shape.dtype)
    if shape.dtype.kind in "iu":
        return rng.integers(0 if shape.dtype.kind == "u" else -4, 9, shape.dims).astype(shape.dtype)
    return rng.normal(size=shape.dims).astype(shape.dtype)


def kinds(local: hs.Partitioned) -> list[str]:
    """The kinds of all collectives, sorted."""
    return sorted(c.kind for c in local.collectives)


def counts(local: hs.Partitioned) -> dict[str, int]:
    """How often each kind of collective occurs."""
    return dict(Counter(kinds(local)))


def opcodes(local: hs.Partitioned) -> list[str]:
    """Opcodes of the local entry, parameters and root tuples left out."""
    return [i.opcode for i in local.module.entry.instructions if i.opcode not in ("parameter", "tuple")]


def root_dims(local: hs.Partitioned) -> Sequence[int]:
    """Dims of the local result."""
    return local.module.entry.root.shape.dims
