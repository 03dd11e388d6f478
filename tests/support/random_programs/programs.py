"""Random programs with random shardings: what the partitioner must get right whatever it is given.

A `random.Random` decides all, so a program is a seed; hypothesis drives the same generator through `st.randoms()`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np

from hlosharding.ir import Builder, Instruction, Module, Shape
from hlosharding.sharding import HloSharding
from tests.support.random_programs.contracting import CONTRACTING
from tests.support.random_programs.control import CONTROL, INDEXING
from tests.support.random_programs.pointwise import MOVING, POINTWISE
from tests.support.random_programs.scope import Maker, Scope
from tests.support.random_programs.shardings import kinds, random_sharding

DEVICE_COUNTS = (2, 4, 6, 8)
FAMILIES: tuple[tuple[Maker, ...], ...] = (POINTWISE, MOVING, CONTRACTING, INDEXING, CONTROL)
WEIGHTS = (3, 3, 4, 2, 1)


@dataclass(frozen=True)
class RandomProgram:
    """A module with shardings, and values for its parameters."""

    module: Module
    arguments: tuple[np.ndarray, ...]


def random_program(random: Random, *, devices: int | None = None) -> RandomProgram:
    """Five to thirty steps over one to ten parameters; every unused value is an output."""
    devices = devices or random.choice(DEVICE_COUNTS)
    builder = Builder("random", num_partitions=devices)
    main = builder.computation("main")
    scope = Scope(builder, main, random, is_entry=True)
    for _ in range(random.randint(1, 3)):
        scope.parameter(scope.shape(random.choice(("f32", "f32", "s32", "bf16"))))
    for _ in range(random.randint(5, 30)):
        random.choice(random.choices(FAMILIES, WEIGHTS)[0])(scope)
    outputs = [v.inst for v in scope.pool if not v.inst.users and v.inst.shape.is_array]
    outputs = outputs or [scope.pool[-1].inst]
    outputs += random.sample([v.inst for v in scope.pool], min(2, len(scope.pool)))
    outputs = list(dict.fromkeys(outputs))
    main.root(main.add("tuple", Shape.tuple(tuple(o.shape for o in outputs)), outputs))
    bounds = {p.parameter_number: scope.integers[p] for p in main.computation.parameters}
    module = builder.finish(main, _shardings(random, builder.module, devices))
    # XLA's own order of computations, as a module read from a file has it.
    module = Module.from_proto(module.to_hlo_proto())
    module.num_partitions = devices
    return RandomProgram(module, tuple(_value(random, p, bounds[p.parameter_number]) for p in module.entry.parameters))


def _shardings(random: Random, module: Module, devices: int) -> dict[Instruction, HloSharding]:
    """On parameters, on random values inside, on outputs: at times on parameters only."""
    inside = random.choice((0.0, 0.0, 0.2, 0.5))
    found: dict[Instruction, HloSharding] = {}
    for inst in module.computations[0].instructions:
        chance = 0.85 if inst.opcode == "parameter" else inside
        if inst.shape.is_array and inst.opcode != "tuple" and random.random() < chance:
            found[inst] = random_sharding(random, inst.shape, devices)
    root = module.computations[0].root
    if random.random() < 0.3:
        found[root] = HloSharding.tuple([random_sharding(random, s, devices) for s in root.shape.leaves])
    return found


def _value(random: Random, parameter: Instruction, bounds: tuple[int, int]) -> np.ndarray:
    rng, shape = np.random.default_rng(random.getrandbits(32)), parameter.shape
    if shape.element_type == "pred":
        return rng.integers(0, 2, shape.dims).astype(bool)
    if shape.is_integral:
        return rng.integers(
            max(0, bounds[0]) if shape.element_type[0] == "u" else bounds[0], bounds[1] + 1, shape.dims
        ).astype(shape.dtype)
    numbers = rng.integers(-16, 17, shape.dims) / 4
    return numbers.astype(shape.dtype) if shape.element_type != "c64" else (numbers * (1 + 1j)).astype(np.complex64)


def coverage(module: Module) -> Counter[tuple[str, str]]:
    """How often each opcode occurs under each kind of sharding (after propagation, in all computations)."""
    found: Counter[tuple[str, str]] = Counter()
    for inst in module.instructions:
        for kind in kinds(module.sharding(inst), inst.shape):
            found[inst.opcode, kind] += 1
    return found
