"""Random programs as the bodies of loops over arguments that are the same, or not, in every trip."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction, Module, Shape, rewrite
from hlosharding.sharding import HloSharding
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram, random_program

PROGRAMS = 40


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_loop_around_a_seeded_program_is_right(seed: int) -> None:
    random = Random(seed)
    program = random_program(random)
    trips, changing = random.choice((0, 1, 3)), random.choice((0.0, 0.3))
    check(RandomProgram(looped(program.module, trips, changing, random), program.arguments))


def test_much_of_it_moves_out_and_much_stays() -> None:
    moved = stayed = 0
    for seed in range(0, PROGRAMS, 4):
        random = Random(seed)
        module = looped(random_program(random).module, 3, 0.3, random)
        for found in executions(module):
            moved, stayed = moved + (found == 1), stayed + (found == 3)
    assert min(moved, stayed) > 5


def executions(module: Module) -> list[int]:
    """How often each collective of the partitioned program runs."""
    return [c.executions for c in hs.partition(module).collectives]


def looped(source: Module, trips: int, changing: float, random: Random) -> Module:
    """The program `trips` times over the same arguments; its last results are the results, before them zeros.

    A parameter is with chance `changing` another value in every trip, as far as anybody can tell.
    """
    module = source.clone()
    given = {i: s for i in module.instructions if (s := module.sharding(i)) is not None}
    body, results = module.entry, module.entry.root
    parameters, shapes = body.parameters, results.shape.tuple_shapes
    count = Shape.array("s32")
    state = Shape.tuple((count, *(p.shape for p in parameters), *shapes))
    builder = Builder("loop")
    main, more = builder.computation("main"), builder.computation("looped_more")
    arguments = [main.parameter(n, p.shape, name=p.name) for n, p in enumerate(parameters)]
    leaves = [HloSharding.replicate(), *(given.get(p, HloSharding.replicate()) for p in parameters)]
    leaves += (
        given[results].leaves if results in given else [given.get(o, HloSharding.replicate()) for o in results.operands]
    )
    first = [main.constant(np.int32(0)), *arguments, *(_zeros(main, s) for s in shapes)]
    loop = main.add("while", state, (main.add("tuple", state, first),), name="loop")
    read = [main.add("get-tuple-element", s, (loop,), tuple_index=n) for n, s in enumerate(state.tuple_shapes)]
    root = main.root(main.add("tuple", results.shape, read[1 + len(parameters) :]))
    carry = more.parameter(0, state, name="carry")
    number = more.add("get-tuple-element", count, (carry,), tuple_index=0)
    less = more.add("compare", Shape.array("pred"), (number, more.constant(np.int32(trips))), comparison_direction="LT")
    more.root(less)
    body.name = "looped_body"  # XLA's converter takes the one named main for the entry
    _as_body(module, body, state, changing, random)
    for made in (more.computation, main.computation):
        made.module = module
        for inst in made.instructions:
            inst.name = f"looped_{inst.name}"
        module.computations.append(made)
    loop.called = (body, more.computation)
    module.set_entry(main.computation)
    module.shardings = {}
    module.renumber()
    given |= {loop: HloSharding.tuple(leaves), root: HloSharding.tuple(leaves[1 + len(parameters) :])}
    given |= dict(zip(arguments, leaves[1:], strict=False))
    alive = set(module.instructions)
    module.shardings = {i.id: s for i, s in given.items() if i in alive}
    again = Module.from_proto(module.to_hlo_proto())
    again.num_partitions = source.num_partitions
    return again


def _zeros(builder: ComputationBuilder, shape: Shape) -> Instruction:
    zero = builder.constant(np.zeros((), shape.dtype))
    return builder.add("broadcast", shape, (zero,), dimensions=())


def _as_body(module: Module, body: Computation, state: Shape, changing: float, random: Random) -> None:
    """Parameters are read from one carry, and given back with the results."""
    parameters, results = body.parameters, body.root

    def insert(
        place: int, opcode: str, shape: Shape, operands: tuple[Instruction, ...], **attributes: Any
    ) -> Instruction:
        name = rewrite.fresh_name(module, f"body_{opcode}")
        return rewrite.insert(body, place, opcode, shape, operands, name=name, **attributes)

    carry = insert(0, "parameter", state, (), parameter_number=0)
    elements = [
        insert(n + 1, "get-tuple-element", s, (carry,), tuple_index=n) for n, s in enumerate(state.tuple_shapes)
    ]
    place = len(elements) + 1
    one = insert(place, "constant", state.tuple_shapes[0], (), literal=np.int32(1))
    later = [insert(place + 1, "add", one.shape, (elements[0], one))]
    for parameter, element in zip(parameters, elements[1:], strict=False):
        rewrite.replace_uses(parameter, element)
        rewrite.remove(parameter)
        if random.random() < changing:
            opcode = "maximum" if element.shape.is_floating else "or"
            element = insert(place + 1 + len(later), opcode, element.shape, (element, element))
        later.append(element)
    root = insert(len(body.instructions), "tuple", state, (*later, *results.operands))
    body.set_root(root)
    rewrite.remove(results)
