"""The writer of local HLO: what it makes, and what it leaves out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import hlosharding as hs
from hlosharding.ir import Builder, Instruction, Shape, SliceDim
from hlosharding.spmd import Emitter, Program
from hlosharding.xla_bridge import run_proto

GROUPS = ((0, 2), (1, 3))


class Bench:
    """An emitter of four devices over a parameter x: f32[4,6]."""

    def __init__(self) -> None:
        self.builder = Builder("bench", num_partitions=4)
        main = self.builder.computation("main")
        self.main = main
        self.x = main.parameter(0, Shape.array("f32", (4, 6)))
        self.emitter = Emitter(Program(self.builder, 4), main)

    def run(self, root: Instruction) -> list[np.ndarray]:
        """The root on every device; device d holds x = arange(24) + 100 d."""
        self.main.root(root)
        module = self.builder.finish(self.main)
        given = [np.arange(24, dtype=np.float32).reshape(4, 6) + 100 * d for d in range(4)]
        return run_proto(module.to_hlo_proto(), [given], 4)[0]


def numbers() -> list[np.ndarray]:
    return [np.arange(24, dtype=np.float32).reshape(4, 6) + 100 * d for d in range(4)]


def test_equal_helpers_are_one_instruction() -> None:
    bench = Bench()
    emitter, x = bench.emitter, bench.x
    assert emitter.transpose(x, (1, 0)) is emitter.transpose(x, (1, 0))
    assert emitter.constant(np.int32(3)) is emitter.constant(np.int32(3))
    assert emitter.constant(np.int32(3)) is not emitter.constant(np.float32(3))
    assert emitter.all_gather(x, 0, GROUPS) is emitter.all_gather(x, 0, GROUPS)
    assert emitter.all_gather(x, 0, GROUPS) is not emitter.all_gather(x, 1, GROUPS)


def test_equal_ops_of_the_program_are_one_instruction() -> None:
    bench = Bench()
    emitter, x = bench.emitter, bench.x
    main = Builder("program").computation("main")
    y = main.parameter(0, x.shape)
    half = Shape.array("f32", (2, 6))
    sines = [main.add("sine", x.shape, (y,)) for _ in range(2)]
    rows = [main.add("slice", half, (y,), slice_dims=(SliceDim(start, start + 2, 1), SliceDim(0, 6, 1)))
            for start in (0, 2, 0)]  # fmt: skip
    numbers_ = [main.constant(np.float32(v)) for v in (1, 2, 1)]
    barriers = [main.add("opt-barrier", x.shape, (y,)) for _ in range(2)]
    draws = [main.add("rng", x.shape, (), distribution=1) for _ in range(2)]
    made = [emitter.local(s, x.shape, (x,)) for s in sines]
    assert made[0] is made[1]
    cuts = [emitter.local(r, half, (x,)) for r in rows]
    assert cuts[0] is cuts[2]
    assert cuts[0] is not cuts[1]
    same = [emitter.local(n, n.shape, ()) for n in numbers_]
    assert same[0] is same[2]
    assert same[0] is not same[1]
    assert emitter.local(barriers[0], x.shape, (x,)) is not emitter.local(barriers[1], x.shape, (x,))
    assert emitter.local(draws[0], x.shape, ()) is not emitter.local(draws[1], x.shape, ())


def test_what_is_computed_twice_is_partitioned_once() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]), ("x",))

    def twice(x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ x.T) + jnp.tanh(x @ x.T)

    step = hs.jit(twice, mesh=mesh, in_shardings=PartitionSpec("x"))
    x = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    local = step.trace(x).propagate().partition().module
    opcodes = [i.opcode for i in local.instructions]
    # XLA's partitioner leaves one of each, too.
    assert [opcodes.count(o) for o in ("dot", "tanh", "all-gather")] == [1, 1, 1]
    np.testing.assert_allclose(step(x), twice(x), rtol=1e-5, atol=1e-5)


def test_what_changes_nothing_is_not_made() -> None:
    bench = Bench()
    emitter, x = bench.emitter, bench.x
    alone = ((0,), (1,), (2,), (3,))
    for same in (
        emitter.reshape(x, (4, 6)),
        emitter.transpose(x, (0, 1)),
        emitter.slice(x, (0, 0), (4, 6)),
        emitter.pad(x, (0, 0), (0, 0)),
        emitter.broadcast(x, (4, 6), (0, 1)),
        emitter.concatenate([x], 0),
        emitter.all_gather(x, 0, alone),
        emitter.all_reduce(x, alone, "add"),
        emitter.reduce_scatter(x, 0, alone, "add"),
        emitter.all_to_all(x, 0, 1, alone),
        emitter.collective_permute(x, [(d, d) for d in range(4)]),
    ):
        assert same is x


@pytest.mark.parametrize("table", [(0, 1, 2, 3), (0, 5, 10, 15), (7, 7, 7, 7), (3, 0, 9, -1), (0, 0, 1, 1)])
def test_a_table_is_read_per_device(table: tuple[int, ...]) -> None:
    bench = Bench()
    assert [int(v) for v in bench.run(bench.emitter.per_device(table))] == list(table)


def test_a_gather_joins_in_group_order() -> None:
    bench = Bench()
    x = numbers()
    found = bench.run(bench.emitter.all_gather(bench.x, 0, ((2, 0), (1, 3))))
    assert np.array_equal(found[0], np.concatenate([x[2], x[0]]))
    assert np.array_equal(found[3], np.concatenate([x[1], x[3]]))


@pytest.mark.parametrize(("kind", "function"), [("add", sum), ("maximum", lambda v: np.maximum(*v))])
def test_a_reduction_and_its_scatter(kind: str, function: object) -> None:
    bench, x = Bench(), numbers()
    assert callable(function)
    totals = [function([x[0], x[2]]), function([x[1], x[3]])]
    whole = bench.run(bench.emitter.all_reduce(bench.x, GROUPS, kind))
    assert all(np.array_equal(whole[d], totals[d % 2]) for d in range(4))
    bench = Bench()
    parts = bench.run(bench.emitter.reduce_scatter(bench.x, 1, GROUPS, kind))
    assert np.array_equal(parts[0], totals[0][:, :3])
    assert np.array_equal(parts[2], totals[0][:, 3:])


@pytest.mark.parametrize(("split", "join"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_an_exchange_sends_part_j_to_member_j(split: int, join: int) -> None:
    bench, x = Bench(), numbers()
    found = bench.run(bench.emitter.all_to_all(bench.x, split, join, GROUPS))
    for number, device in enumerate(GROUPS[1]):
        parts = [np.split(x[member], 2, axis=split)[number] for member in GROUPS[1]]
        assert np.array_equal(found[device], np.concatenate(parts, axis=join))


def test_a_permute_leaves_zeros_where_nothing_arrives() -> None:
    bench, x = Bench(), numbers()
    found = bench.run(bench.emitter.collective_permute(bench.x, [(3, 0), (0, 1)]))
    assert np.array_equal(found[0], x[3])
    assert np.array_equal(found[1], x[0])
    assert not found[2].any()


def test_every_collective_has_a_channel_of_its_own() -> None:
    bench = Bench()
    emitter, x = bench.emitter, bench.x
    made = [
        emitter.all_gather(x, 0, GROUPS),
        emitter.all_reduce(x, GROUPS, "add"),
        emitter.all_reduce(x, GROUPS, "maximum"),
    ]
    assert len({i.channel_id for i in made}) == 3


def test_reducers_are_made_once_per_type() -> None:
    bench = Bench()
    program = bench.emitter.program
    assert program.scalars.reducer("add", "f32") is program.scalars.reducer("add", "f32")
    assert program.scalars.reducer("add", "f32") is not program.scalars.reducer("add", "bf16")


def test_a_slice_of_the_programs_slice_starts_in_range() -> None:
    # XLA merges the two; without a clamp between, start 9 (in effect 2) plus 1 would run out at the end.
    bench, x = Bench(), numbers()
    emitter, main = bench.emitter, bench.main
    nine, zero = emitter.constant(np.int32(9)), emitter.constant(np.int32(0))
    start = main.add("multiply", Shape.array("s32"), (nine, emitter.per_device((1, 1, 1, 0))))
    mine = main.add("dynamic-slice", Shape.array("f32", (2, 6)), (bench.x, start, zero), dynamic_slice_sizes=(2, 6))
    found = bench.run(emitter.dynamic_slice(mine, (emitter.per_device((0, 1, 0, 1)), zero), (1, 6)))
    assert [row[0, 0] for row in found] == [x[0][2, 0], x[1][3, 0], x[2][2, 0], x[3][1, 0]]
