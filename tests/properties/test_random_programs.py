"""Random programs, run partitioned and on one device; and the generator's own promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.ir import verify
from hlosharding.sharding import HloSharding
from tests.support.program_check import check, is_close, joined, one_device, tiles, wide, widened
from tests.support.random_programs.programs import random_program
from tests.support.random_programs.scope import Shape
from tests.support.random_programs.shardings import random_sharding

PROGRAMS = 50


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_seeded_program_is_right(seed: int) -> None:
    _right(Random(seed))


@settings(max_examples=20)
@given(st.randoms(use_true_random=False))
def test_a_drawn_program_is_right(random: Random) -> None:
    _right(random)


def _right(random: Random) -> None:
    check(random_program(random), how="run")


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_is_a_program(seed: int) -> None:
    first, again = (random_program(Random(seed)) for _ in range(2))
    verify(first.module)
    assert first.module.to_hlo_proto() == again.module.to_hlo_proto()
    assert all(np.array_equal(a, b) for a, b in zip(first.arguments, again.arguments, strict=True))
    for inst in first.module.instructions:
        sharding = first.module.sharding(inst)
        if sharding is not None and not sharding.is_tuple():
            sharding.validate(inst.shape, first.module.num_partitions)


def test_programs_reach_most_opcodes() -> None:
    seen = Counter(i.opcode for seed in range(150) for i in random_program(Random(seed)).module.instructions)
    assert len(seen) >= 75
    assert (
        min(seen[op] for op in ("dot", "convolution", "gather", "scatter", "while", "conditional", "sort", "pad")) > 20
    )


@pytest.mark.parametrize("seed", [3, 14, 15])
def test_what_is_said_to_be_exact_is_exact(seed: int) -> None:
    program = random_program(Random(seed))
    plain = one_device(program.module, program.arguments)
    precise = one_device(widened(program.module), [wide(a) for a in program.arguments])
    for narrow, exact in zip(plain, precise, strict=True):
        assert narrow.dtype.kind not in "iub" or is_close(narrow, exact)


@given(st.randoms(use_true_random=False), st.sampled_from((2, 4, 6, 8)))
def test_tiles_join_to_the_array(random: Random, devices: int) -> None:
    shape = Shape.array("f32", tuple(random.randint(1, 9) for _ in range(random.randint(0, 3))))
    array = np.arange(shape.size, dtype=np.float32).reshape(shape.dims)
    sharding: HloSharding = random_sharding(random, shape, devices)
    parts = tiles(array, sharding, devices)
    assert len({p.shape for p in parts}) == 1
    assert np.array_equal(joined(parts, sharding, shape), array)


@pytest.mark.parametrize("seed", range(100, 108))
@pytest.mark.parametrize("is_annotated", [False, True])
def test_the_best_shardings_of_all_values_are_right(seed: int, is_annotated: bool) -> None:
    program = random_program(Random(seed))
    module, count = program.module.clone(), program.module.num_partitions
    module.shardings = module.shardings if is_annotated else {}
    best = hs.find_optimum(module, machines.h100(count), {"x": count}, batch=(), donated=())
    check(replace(program, module=best.annotated), how="reference")
