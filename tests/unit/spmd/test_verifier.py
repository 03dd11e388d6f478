"""Every kind of damage to a per-device program is found, with the instruction's name; sound programs pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import LoadError, ModuleError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import COLLECTIVES, Instruction, Module, Shape, rewrite
from hlosharding.partitioner.passes import condition_sync as votes
from hlosharding.spmd import PartialSums, verify_partitioned
from hlosharding.spmd.uniformity import Uniformity


def local_module(body: str, *, devices: int = 4, computations: str = "") -> Module:
    """A per-device program as written."""
    text = f"HloModule m, num_partitions={devices}\n\n{computations}\n\nENTRY main {{\n{body}\n}}\n"
    module = hs.load(text, format="hlo")
    module.num_partitions = devices
    return module


ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
count { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }"""


@pytest.fixture
def program(mesh_2x4: Mesh) -> tuple[Module, PartialSums]:
    """A layer with its gradient: reductions of partial sums, gathers, elementwise ops."""
    seen: list[tuple[Module, PartialSums]] = []

    def spy(module: Module, sums: PartialSums) -> None:
        verify_partitioned(module, sums)
        seen.append((module, sums))

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)

    specs = (P("model", None), P("data", "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "verify_partitioned", spy)
        hs.partition(hs.trace(step, mesh=mesh_2x4, in_shardings=specs)(np.ones((8, 16), "f"), np.ones((16, 8), "f")))
    return seen[-1]


def first(module: Module, *opcodes: str) -> Instruction:
    return next(i for i in module.instructions if i.opcode in opcodes)


# Damage


def another_shape(module: Module, inst: Instruction) -> None:
    inst.shape = inst.shape.with_dims((*inst.shape.dims[:-1], inst.shape.dims[-1] + 1))


def test_a_tile_of_another_size_is_found(program: tuple[Module, PartialSums]) -> None:
    module, sums = program
    for inst in module.entry.instructions:
        if inst.opcode not in ("subtract", "multiply", "dot", "all-reduce", "tanh"):
            continue
        before = inst.shape
        another_shape(module, inst)
        with pytest.raises(ModuleError, match=r"shape .*%"):
            verify_partitioned(module, sums)
        inst.shape = before
    verify_partitioned(module, sums)


def change(**attributes: Any) -> Callable[[Instruction], None]:
    def damage(inst: Instruction) -> None:
        from hlosharding.ir.builder import write_attributes

        write_attributes(inst.own_proto(), attributes)

    return damage


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"replica_groups": ((0, 1, 2, 3), (3, 4, 5, 6))}, "device 3 twice in its replica groups"),
        ({"replica_groups": ((0, 1, 2, 3),)}, r"leaves devices \[4, 5, 6, 7\] out"),
        ({"replica_groups": ((0, 1, 2, 3), (4, 5, 6, 9))}, "device 9"),
    ],
)
def test_groups_that_overlap_or_leave_somebody_out(
    program: tuple[Module, PartialSums], attributes: dict[str, Any], words: str
) -> None:
    module, sums = program
    change(**attributes)(first(module, "all-reduce"))
    with pytest.raises(ModuleError, match=words):
        verify_partitioned(module, sums)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [("{0,1},{2,1}", "device 1 twice among its targets"), ("{0,1},{0,2}", "device 0 twice among its sources"),
     ("{0,1},{1,5}", "device 5 among its targets; the program is for 4")],
)  # fmt: skip
def test_permutes_that_are_none(pairs: str, words: str) -> None:
    permute = (
        f"x = f32[2] parameter(0)  ROOT y = f32[2] collective-permute(x), channel_id=1, source_target_pairs={{{pairs}}}"
    )
    with pytest.raises(LoadError, match=words):
        local_module(permute)
    with pytest.raises(ModuleError, match=words):
        verify_partitioned(from_hlo_text(f"HloModule m, num_partitions=4\nENTRY e {{ {permute} }}"))


def test_a_channel_used_twice(program: tuple[Module, PartialSums]) -> None:
    module, sums = program
    one, other, *_ = [i for i in module.instructions if i.opcode in COLLECTIVES]
    change(channel_id=one.channel_id)(other)
    with pytest.raises(ModuleError, match=f"%{other.name}.*|channel {one.channel_id} of %{one.name}"):
        verify_partitioned(module, sums)


def test_partial_sums_taken_for_their_sum(program: tuple[Module, PartialSums]) -> None:
    module, sums = program
    for reduced in [i for i in module.instructions if i.opcode in ("all-reduce", "reduce-scatter")]:
        partial_sums = reduced.operands[0]
        if partial_sums.shape is not reduced.shape:
            continue
        users = list(reduced.users)
        rewrite.replace_uses(reduced, partial_sums)
        with pytest.raises(ModuleError, match=f"uses the partial sums of %{partial_sums.name}"):
            verify_partitioned(module, sums)
        for user in users:
            rewrite.set_operands(user, (reduced if o is partial_sums else o for o in user.operands))
        verify_partitioned(module, sums)
        return
    raise AssertionError("no all-reduce in the program")


def test_a_sum_reduced_twice(program: tuple[Module, PartialSums]) -> None:
    module, sums = program
    reduced = first(module, "all-reduce")
    at = reduced.computation.instructions.index(reduced) + 1
    again = rewrite.insert(
        reduced.computation, at, "all-reduce", reduced.shape, (reduced,), name="again", like=reduced,
        called=reduced.called, replica_groups=reduced.replica_groups, channel_id=99, use_global_device_ids=True,
    )  # fmt: skip
    rewrite.replace_uses(reduced, again, where=lambda user: user is not again)
    module.renumber()
    sums.readers.add(again)
    with pytest.raises(ModuleError, match=f"reduces what %{reduced.name} has reduced already"):
        verify_partitioned(module, sums)


# Conditions

LOOP = """
body {{
  s = (f32[2], s32[]) parameter(0)
  x = f32[2] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  r = f32[2] all-reduce(x), replica_groups={groups}{flags}, to_apply=add
  ROOT t = (f32[2], s32[]) tuple(r, next)
}}

going {{
  s = (f32[2], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=1
  four = s32[] constant(4)
  ROOT p = pred[] compare(n, four), direction=LT
}}
"""


def loop_from(
    count: str,
    groups: str = "{{0,1,2,3}}",
    more: str = "",
    *,
    flags: str = ", channel_id=1, use_global_device_ids=true",
    computations: str = "",
) -> Module:
    """A loop with an all-reduce in it, that begins counting at `count`."""
    return local_module(
        f"""
        x = f32[2] parameter(0), sharding={{devices=[4]<=[4]}}
        k = s32[] parameter(1), sharding={{replicated}}
        d = u32[] partition-id()
        i = s32[] convert(d)
        two = s32[] constant(2)
        zero = s32[] constant(0)
        {more}
        s = (f32[2], s32[]) tuple(x, {count})
        w = (f32[2], s32[]) while(s), condition=going, body=body
        ROOT y = f32[2] get-tuple-element(w), index=0""",
        computations=ADD + computations + LOOP.format(groups=groups, flags=flags),
    )


@pytest.mark.parametrize(
    ("count", "more"),
    [("zero", ""), ("k", ""), ("h", "h = s32[] multiply(i, zero)")],
)
def test_loops_that_all_devices_leave_together_pass(count: str, more: str) -> None:
    verify_partitioned(loop_from(count, more=more))


def test_a_loop_that_devices_leave_at_different_times_is_found() -> None:
    with pytest.raises(ModuleError, match=r"needs devices 0, 1, 2, 3 together.*%w.*%d, partition-id"):
        verify_partitioned(loop_from("i"))


def test_a_count_from_ones_own_data_is_found() -> None:
    more = """flat = f32[1] slice(x), slice={[0:1]}
        part = f32[] reshape(flat)
        mine = s32[] convert(part)"""
    with pytest.raises(ModuleError, match=r"%x\S*, parameter"):
        verify_partitioned(loop_from("mine", more=more))
    more += "\n all = s32[] all-reduce(mine), channel_id=2, use_global_device_ids=true, to_apply=count"
    verify_partitioned(loop_from("all", more=more))


def test_what_was_handed_round_by_permutes_is_the_same() -> None:
    """Device 0 sends to 1, both to 2 and 3; each takes what came, or keeps its own."""

    def more(first: int) -> str:
        return f"""flat = f32[1] slice(x), slice={{[0:1]}}
        one = s32[] constant(1)
        odd = pred[] compare(i, one), direction=EQ
        odds = pred[1] broadcast(odd), dimensions={{}}
        high = pred[] compare(i, two), direction=GE
        highs = pred[1] broadcast(high), dimensions={{}}
        once = f32[1] collective-permute(flat), channel_id=2, source_target_pairs={{{{0,1}}}}
        both = f32[1] select(odds, once, flat)
        twice = f32[1] collective-permute(both), channel_id=3, source_target_pairs={{{{{first},2}},{{1,3}}}}
        all = f32[1] select(highs, twice, both)
        part = f32[] reshape(all)
        mine = s32[] convert(part)"""

    verify_partitioned(loop_from("mine", more=more(0)))
    with pytest.raises(ModuleError, match="condition of %w may differ"):
        verify_partitioned(loop_from("mine", more=more(2)))


ALL_DEVICES = "use_global_device_ids=true, replica_groups={{0,1,2,3}}, to_apply=count"


@pytest.mark.parametrize(
    ("exchange", "is_uniform"),
    [
        # Without a channel and with one replica a device adds up its own alone, so its counts differ as before.
        ("s32[] all-reduce(i), to_apply=count", False),
        ("s32[] all-reduce(i), channel_id=2, replica_groups={{0}}, to_apply=count", True),
        (f"s32[] all-reduce(i), channel_id=2, {ALL_DEVICES}", True),
        # 0 + 1 + 2 on three of them, 3 on the last: equal, but nobody can rely on it.
        ("s32[] all-reduce(i), channel_id=2, use_global_device_ids=true, replica_groups={{0,1,2},{3}}, to_apply=count",
         False),
        ("s32[] collective-permute(i), source_target_pairs={{0,0}}", False),
    ],
)  # fmt: skip
def test_counts_that_devices_exchange(exchange: str, is_uniform: bool) -> None:
    module = loop_from("n", more=f"n = {exchange}")
    with nullcontext() if is_uniform else pytest.raises(ModuleError, match="condition of %w may differ"):
        verify_partitioned(module)


@pytest.mark.parametrize(
    ("exchange", "is_uniform"),
    [
        (f"b = s32[] all-reduce-start(i), channel_id=2, {ALL_DEVICES}  n = s32[] all-reduce-done(b)", True),
        ("b = s32[] all-reduce-start(i), to_apply=count  n = s32[] all-reduce-done(b)", False),
        ("f = s32[1] reshape(i)  b = (s32[1], s32[4]) all-gather-start(f), channel_id=2, use_global_device_ids=true,"
         " replica_groups={{0,1,2,3}}, dimensions={0}  g = s32[4] all-gather-done(b)"
         "  o = s32[1] slice(g), slice={[2:3]}  n = s32[] reshape(o)", True),
        ("b = ((s32[]), s32[], u32[]) async-start(i), calls=summed  n = s32[] async-done(b)", True),
        ("b = ((s32[]), s32[], u32[]) async-start(i), calls=kept  n = s32[] async-done(b)", False),
        ("b = (s32[], s32[], u32[], u32[]) collective-permute-start(i), channel_id=2, source_target_pairs={{0,1}}"
         "  n = s32[] collective-permute-done(b)", False),
    ],
)  # fmt: skip
def test_counts_exchanged_asynchronously(exchange: str, is_uniform: bool) -> None:
    module = loop_from("n", more=exchange, computations=f"""
        summed {{ a = s32[] parameter(0)  ROOT s = s32[] all-reduce(a), channel_id=2, {ALL_DEVICES} }}
        kept {{ a = s32[] parameter(0)  ROOT s = s32[] negate(a) }}""")  # fmt: skip
    with nullcontext() if is_uniform else pytest.raises(ModuleError, match="condition of %w may differ"):
        verify_partitioned(module)


def test_devices_that_are_alone_in_a_collective_may_part() -> None:
    """Each device leaves the loop by its own count: it need not wait for another."""
    verify_partitioned(loop_from("i", "{}", flags=""))
    with pytest.raises(ModuleError, match="needs devices 0, 1, 2, 3 together"):
        verify_partitioned(loop_from("i", "{{0}}", flags=", channel_id=1"))


def test_groups_inside_which_all_agree_pass() -> None:
    """Devices 0 and 1 go 4 trips, 2 and 3 go 3."""
    half = "half = s32[] divide(i, two)"
    verify_partitioned(loop_from("half", "{{0,1},{2,3}}", half))
    with pytest.raises(ModuleError, match="needs devices 0, 2 together"):
        verify_partitioned(loop_from("half", "{{0,2},{1,3}}", half))


@pytest.mark.parametrize(
    ("count", "groups"),
    [
        # Not of a number is another one for each: -1, -2, -3 and -4.
        ("n = s32[] not(i)", "{{0},{1,2,3}}"),
        # Without a sign 0 - 1 is the largest number: of the four devices number 1 alone has less than 1.
        ("one = u32[] constant(1)  u = u32[] subtract(d, one)  p = pred[] compare(u, one), direction=LT"
         "  n = s32[] convert(p)", "{{0,1},{2,3}}"),
        ("most = u64[] constant(18446744073709551615)  u = u64[] convert(d)  a = u64[] and(u, most)"
         "  n = s32[] convert(a)", "{{0,1,2,3}}"),
    ],
)  # fmt: skip
def test_counts_made_as_their_type_makes_them(count: str, groups: str) -> None:
    with pytest.raises(ModuleError, match="condition of %w may differ"):
        verify_partitioned(loop_from("n", groups, count))


def test_branches_of_the_users_own(mesh_2x4: Mesh) -> None:
    """`psum` over the other axis in a branch on one's own place: fine.  Over the same axis: nobody comes."""

    def inside(axis: str) -> Callable[[jax.Array], jax.Array]:
        def region(x: jax.Array) -> jax.Array:
            return lax.cond(lax.axis_index("data") == 0, lambda v: lax.psum(v, axis), lambda v: v * 2, x)

        return jax.shard_map(
            region, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P("data", "model"), check_vma=False
        )

    x = np.ones((4, 8), np.float32)
    hs.partition(hs.trace(inside("model"), mesh=mesh_2x4)(x))
    with pytest.raises(ModuleError, match=r"all-reduce needs devices 0, 4 together.*partition-id"):
        hs.partition(hs.trace(inside("data"), mesh=mesh_2x4)(x))


def test_nested_conditions_count_too() -> None:
    module = local_module(
        """
        x = f32[2] parameter(0), sharding={devices=[4]<=[4]}
        d = u32[] partition-id()
        one = u32[] constant(1)
        p = pred[] compare(d, one), direction=LT
        ROOT y = f32[2] conditional(p, x, x), true_computation=outer, false_computation=same""",
        computations=f"""{ADD}
        deep {{ x = f32[2] parameter(0)
          ROOT r = f32[2] all-reduce(x), channel_id=1, use_global_device_ids=true, to_apply=add }}
        same {{ ROOT x = f32[2] parameter(0) }}
        outer {{ x = f32[2] parameter(0)
          t = pred[] constant(true)
          ROOT c = f32[2] conditional(t, x, x), true_computation=deep, false_computation=same }}""",
    )
    with pytest.raises(ModuleError, match="condition of %y may differ"):
        verify_partitioned(module)


def test_shapes_of_every_law() -> None:
    """Each op of a program that uses them all, one at a time with another size."""
    from hlosharding.ir import verify

    def program(x: jax.Array, w: jax.Array) -> Any:
        y = jnp.pad(x, ((1, 2), (0, 0)))[1:5, ::2]
        z = lax.conv_general_dilated(x[None, None], w[None, None, :3, :3], (1, 2), "SAME")
        r = lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID")
        return (
            y @ w[:4], jnp.concatenate([x, x], 1), x.T.reshape(-1), jnp.sort(x, 0), x[jnp.array([3, 1])],
            lax.dynamic_slice(x, (jnp.int32(1), 0), (2, 8)), jnp.flip(x, 0), z, r, x.sum(0), x.at[0].set(1.0),
        )  # fmt: skip

    module = hs.trace(program)(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32))
    verify(module)
    skipped = {"parameter", "constant", "tuple", "iota", "broadcast"}
    opcodes = {i.opcode for i in module.entry.instructions if i.shape.is_array and i.shape.rank} - skipped
    assert len(opcodes) > 12
    for opcode in opcodes:
        inst = next(i for i in module.entry.instructions if i.opcode == opcode and i.shape.rank)
        before: Shape = inst.shape
        another_shape(module, inst)
        with pytest.raises(ModuleError, match="shape "):
            verify(module)
        inst.shape = before


def loops_in_a_row(count: int) -> Module:
    """Each is left by what the one before it computed."""
    loop = """going{0} {{
  p = (f32[2], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  n = s32[] constant({0})
  ROOT less = pred[] compare(i, n), direction=LT
}}
body{0} {{
  p = (f32[2], s32[]) parameter(0)
  x = f32[2] get-tuple-element(p), index=0
  i = s32[] get-tuple-element(p), index=1
  y = f32[2] all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=add, channel_id={0}, use_global_device_ids=true
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (f32[2], s32[]) tuple(y, j)
}}"""
    lines = [f"  w{n} = (f32[2], s32[]) while(w{n - 1}), condition=going{n}, body=body{n}" for n in range(1, count + 1)]
    start = (
        "  x = f32[2] parameter(0), sharding={replicated}\n  i = s32[] constant(0)\n  w0 = (f32[2], s32[]) tuple(x, i)"
    )
    body = "\n".join([start, *lines, f"  ROOT y = f32[2] get-tuple-element(w{count}), index=0"])
    return local_module(body, computations="\n".join([ADD, *(loop.format(n) for n in range(1, count + 1))]))


def test_a_longer_program_takes_no_more_looks_at_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    usual = Uniformity._evaluate
    monkeypatch.setattr(Uniformity, "_evaluate", lambda self, node: looks.append(node) or usual(self, node))
    taken: list[int] = []
    for count in (10, 20):
        looks.clear()
        verify_partitioned(loops_in_a_row(count))
        taken.append(len(looks))
    assert 0 < taken[1] <= 2.1 * taken[0]
