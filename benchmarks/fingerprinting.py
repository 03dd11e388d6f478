"""What a fingerprint is made of: the programs, and the digests of what becomes of each."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from random import Random
from typing import Any

import hlosharding as hs
from benchmarks.workers import tell
from hlosharding.compiler import Partitioned, best_program
from hlosharding.errors import HloShardingError
from hlosharding.ir import Builder, Computation, Instruction, Module, Shape
from hlosharding.partitioner import PartitionOptions

SETTINGS = {
    "bytes": PartitionOptions(objective="bytes"),
    "time": PartitionOptions(),
    "overlap": PartitionOptions(overlap="always"),
}
EXPLAINED = 12
"""So many instructions and collectives of a program are explained, spread evenly."""
RANDOM_PROGRAMS = 300
RESHARDS = 300

Source = Module | hs.Propagation
Named = tuple[str, Callable[[], Source]]


def sizes(families: Sequence[str]) -> dict[str, int]:
    """Programs of each family that is asked for: `name`, or `name:count` for the first of it."""
    asked = [name.partition(":") for name in families or FAMILIES]
    return {name: min(int(count or 1e9), len(programs(name))) for name, _, count in asked}


@cache
def programs(family: str) -> tuple[Named, ...]:
    """The programs of a family, each to be made when it is wanted."""
    return tuple(FAMILIES[family]())


def record(family: str, numbers: Iterable[int]) -> None:
    """Tell the fingerprints of some programs of a family."""
    import conftest

    conftest.set_environment()
    for number in numbers:
        name, make = programs(family)[number]
        for setting, prints in fingerprints(make):
            tell({"program": f"{family} {name} {setting}", "prints": prints})


# The programs


def _mirror() -> Iterator[Named]:
    from tests.xla_mirror.partitioner.cases import all_cases
    from tests.xla_mirror.partitioner.running import loaded

    for case in all_cases():
        yield case.name, lambda case=case: loaded(case.hlo, case.devices)


def _random() -> Iterator[Named]:
    from tests.support.random_programs.programs import random_program

    for seed in range(RANDOM_PROGRAMS):
        yield str(seed), lambda seed=seed: hs.propagate(random_program(Random(seed)).module)


def _zoo() -> Iterator[Named]:
    from benchmarks.zoo import MODELS

    for model in MODELS:
        yield model.name, lambda model=model: _model(model)


def _model(model: Any) -> Source:
    import jax

    program = model.build(model.mesh(), 4)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
    return _propagated(hs.jit(program.function, mesh=model.mesh(), **program.options).trace(*arguments))


def _examples() -> Iterator[Named]:
    from benchmarks import cases

    for make in (cases.gpt2_case, cases.conv_net_case, cases.flax_case):
        yield make.__name__, lambda make=make: _propagated(make().traced())


def _deep() -> Iterator[Named]:
    """Of so many layers that the partitioner decides for one and copies it to the others."""
    from benchmarks import deep_models

    for make in (deep_models.gpt2, deep_models.encoder_decoder, deep_models.experts, deep_models.residual):
        yield make.__name__, lambda make=make: _propagated(make(24).traced())


def _propagated(traced: Any) -> Source:
    return traced.propagate().propagation


def _reshards() -> Iterator[Named]:
    for seed in range(RESHARDS):
        yield str(seed), lambda seed=seed: _reshard(Random(seed))


def _reshard(random: Random) -> Module:
    """A parameter copied from one random sharding to another."""
    from tests.support.random_programs.shardings import random_sharding

    devices = random.choice((2, 4, 6, 8, 16))
    shape = Shape.array("f32", tuple(random.choice((4, 6, 8, 24, 1024)) for _ in range(random.randint(1, 4))))
    source, target = (random_sharding(random, shape, devices) for _ in range(2))
    builder = Builder("reshard", num_partitions=devices)
    main = builder.computation("main")
    x = main.parameter(0, shape)
    y = main.root(main.add("copy", shape, (x,)))
    return builder.finish(main, {x: source, y: target})


FAMILIES: dict[str, Callable[[], Iterator[Named]]] = {
    "mirror": _mirror,
    "zoo": _zoo,
    "examples": _examples,
    "deep": _deep,
    "random": _random,
    "reshards": _reshards,
}


# Their fingerprints


def fingerprints(make: Callable[[], Source]) -> Iterator[tuple[str, dict[str, str]]]:
    """(setting, aspect -> digest) of one program; of a refusal the error's class."""
    try:
        source = make()
    except HloShardingError as error:
        yield "-", {"refused": type(error).__name__}
        return
    whole = {"shardings": _shardings(_module(source)), "causes": _causes(source)}
    for setting, options in SETTINGS.items():
        yield setting, whole | _of_partitioned(source, options)


def _module(source: Source) -> Module:
    return source.module if isinstance(source, hs.Propagation) else source


def _causes(source: Source) -> str:
    """Of what `explain` says of shardings."""
    if not isinstance(source, hs.Propagation):
        return ""
    named = _spread([inst.name for inst in source.module.entry.instructions])
    return digest(str(source.explain(name)) for name in named)


def _of_partitioned(source: Source, options: PartitionOptions) -> dict[str, str]:
    try:
        local = _partitioned(source, options)
    except HloShardingError as error:
        return {"refused": type(error).__name__}
    return {
        "hlo": _computation(local.module.entry, {}),
        "collectives": _collectives(local),
        "cost": _cost(local),
        "python": _python(local),
        "overrides": digest(f"{o.name} {o.propagated} {o.chosen} {o.why}" for o in local.sharding_overrides),
        "warnings": digest(local.warnings),
        "explained": digest(map(str, local.explain_collectives(*_spread(range(len(local.collectives)))))),
    }


def _python(local: Partitioned) -> str:
    try:
        return digest([ast.dump(ast.parse(local.as_python()))])
    except Exception as error:  # noqa: BLE001  (what it ends in is as much a property as what it makes)
        return type(error).__name__


def _spread(values: Sequence[Any]) -> Sequence[Any]:
    """At most EXPLAINED of them, evenly."""
    return values[:: -(-len(values) // EXPLAINED) or 1]


def _partitioned(source: Source, options: PartitionOptions) -> Partitioned:
    """As `hs.partition` does it; a module keeps its shardings as they are."""
    module = _module(source)
    machine = hs.machines.h100(module.num_partitions)
    if isinstance(source, hs.Propagation):
        return hs.partition(source, num_partitions=module.num_partitions, machine=machine, options=options)
    local = best_program(module, num_partitions=module.num_partitions, machine=machine, options=options)
    return Partitioned(local, module, machine, None)


def digest(lines: Iterable[str]) -> str:
    """Sixteen hexadecimal digits of some text."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _shardings(module: Module) -> str:
    return digest(f"{i.name} {module.sharding(i)}" for i in module.instructions)


def _computation(computation: Computation, known: dict[Computation, str]) -> str:
    """Of a computation: instructions by position, callees by their own digests, no names and no metadata."""
    if computation not in known:
        position = {inst: number for number, inst in enumerate(computation.instructions)}
        lines = [_instruction(inst, position, known) for inst in computation.instructions]
        known[computation] = digest([*lines, f"root {position[computation.root]}"])
    return known[computation]


_NAMING = ("name", "id", "metadata", "frontend_attributes", "sharding", "shape")
_EDGES = ("operand_ids", "called_computation_ids", "control_predecessor_ids")


def _instruction(inst: Instruction, position: dict[Instruction, int], known: dict[Computation, str]) -> str:
    proto = type(inst.proto)()
    proto.CopyFrom(inst.proto)
    for field in (*_NAMING, *_EDGES):
        proto.ClearField(field)
    operands = [position[o] for o in inst.operands]
    before = [position[p] for p in inst.control_predecessors]
    callees = [_computation(c, known) for c in inst.called]
    attributes = proto.SerializeToString(deterministic=True)
    return f"{inst.shape} {operands} {before} {callees} {inst.module.sharding(inst)} {attributes!r}"


def _collectives(local: Partitioned) -> str:
    return digest(
        f"{c.kind} {c.groups} {c.pairs} {c.shape} {c.bytes_per_device} {c.executions} {c.location} {c.axes}"
        for c in local.collectives
    )


def _cost(local: Partitioned) -> str:
    found = local.cost
    numbers = (found.flops, found.comm_bytes, found.peak_memory_bytes, found.time_s, found.host_memory_bytes)
    return digest(map(repr, (*numbers, hs.simulate(local.module, local.machine).time_s)))
