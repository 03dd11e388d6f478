"""Collectives of hand-made HLO texts: every byte figure here was computed by hand from the byte model.

B the local buffer, g the group: all-gather (g-1)/g of the output, reduce-scatter (g-1)/g of the input, all-reduce
2(g-1)/g B, all-to-all (g-1)/g B, permute B for a device that receives from another; mean over all devices.
"""

# ruff: noqa: E501  (HLO reads best with an instruction on one line)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hlosharding import load
from hlosharding.sharding import MeshInfo
from hlosharding.spmd import CAUSE_ATTRIBUTE, Collective, Groups, bytes_received, collectives

ADD = "add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }\n"
HEAD = f"HloModule m, num_partitions=8\n{ADD}"
FOURS = "replica_groups={{0,1,2,3},{4,5,6,7}}"
KB4 = 16 * 64 * 4


def with_device_ids(op: str) -> str:
    """The op with the channel and flag by which its replica groups name devices, as XLA's partitioner writes it."""
    has_flag = any(f"{kind}(" in op for kind in ("all-gather", "all-reduce", "reduce-scatter"))
    return f"{op}, channel_id=1{', use_global_device_ids=true' if has_flag else ''}"


def read(body: str, head: str = HEAD) -> list[Collective]:
    return collectives(load(f"{head}ENTRY main {{\n{body}\n}}"))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (f"f32[64,64] all-gather(p), {FOURS}, dimensions={{0}}", 3 / 4 * 4 * KB4),
        (f"f32[4,64] reduce-scatter(p), {FOURS}, dimensions={{0}}, to_apply=add", 3 / 4 * KB4),
        (f"f32[16,64] all-reduce(p), {FOURS}, to_apply=add", 2 * 3 / 4 * KB4),
        (f"f32[16,64] all-to-all(p), {FOURS}, dimensions={{0}}", 3 / 4 * KB4),
        (f"f32[16,64] collective-broadcast(p), {FOURS}", 3 / 4 * KB4),
        ("f32[16,64] collective-permute(p), source_target_pairs={{0,1},{1,0},{2,2},{3,4}}", 3 / 8 * KB4),
        ("f32[16,64] all-reduce(p), replica_groups={}, to_apply=add", 2 * 7 / 8 * KB4),
        ("f32[16,64] all-reduce(p), replica_groups={{0,1},{2},{3},{4},{5},{6},{7}}, to_apply=add", 2 / 8 * KB4),
        ("f32[16,64] all-reduce(p), replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}, to_apply=add", 0.0),
        ("bf16[16,64] all-reduce(q), replica_groups=[2,4]<=[8], to_apply=add", 2 * 3 / 4 * KB4 / 2),
        ("(f32[16,64], bf16[16,64]) all-reduce(p, q), replica_groups=[4,2]<=[8], to_apply=add", KB4 * 1.5),
    ],
)
def test_bytes_of_one_collective(op: str, expected: float) -> None:
    [found] = read(f"p = f32[16,64] parameter(0)\n q = bf16[16,64] parameter(1)\n ROOT r = {with_device_ids(op)}")
    assert found.bytes_per_device == pytest.approx(expected)
    assert found.received.mean() == pytest.approx(expected)
    assert found.executions == 1
    assert found.bytes_per_execution == pytest.approx(expected)


def test_the_wire_forms_of_groups_say_the_same() -> None:
    def groups(text: str) -> object:
        [found] = read(
            "p = f32[8] parameter(0)\n"
            f" ROOT r = f32[8] all-reduce(p), replica_groups={text}, to_apply=add, channel_id=1,"
            " use_global_device_ids=true"
        )
        return found.groups

    assert groups("{{0,2,4,6},{1,3,5,7}}") == groups("[2,4]<=[4,2]T(1,0)") == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert groups("mesh['a'=4,'b'=2] {'a'}") == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert groups("{}") == (tuple(range(8)),)


def test_received_by_device_tells_who_gets_what() -> None:
    [found] = read(
        "p = f32[10] parameter(0)\n"
        " ROOT r = f32[10] collective-permute(p), source_target_pairs={{0,1},{2,5}}, channel_id=1"
    )
    assert found.groups is None
    assert found.pairs == ((0, 1), (2, 5))
    np.testing.assert_array_equal(found.received, [0, 40, 0, 0, 0, 40, 0, 0])


STARTS = """
p = f32[16,64] parameter(0)
gs = (f32[16,64], f32[64,64]) all-gather-start(p), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}, use_global_device_ids=true, channel_id=1
g = f32[64,64] all-gather-done(gs)
rs = f32[64,64] all-reduce-start(g), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=add, use_global_device_ids=true, channel_id=2
r = f32[64,64] all-reduce-done(rs)
ps = (f32[64,64], f32[64,64]) collective-permute-start(r), source_target_pairs={{0,1}}, channel_id=3
ROOT q = f32[64,64] collective-permute-done(ps)
"""


def test_asynchronous_pairs_count_once_with_their_result() -> None:
    gather, reduce, permute = read(STARTS)
    assert (gather.kind, str(gather.shape), gather.bytes_per_device) == ("all-gather", "f32[64,64]", 3 / 4 * 4 * KB4)
    assert (reduce.kind, reduce.bytes_per_device) == ("all-reduce", 2 * 1 / 2 * 4 * KB4)
    assert (permute.kind, str(permute.shape), permute.bytes_per_device) == (
        "collective-permute",
        "f32[64,64]",
        4 * KB4 / 8,
    )


WRAPPED = """
exchange {
  a = f32[16,64] parameter(0)
  ROOT t = f32[16,64] all-to-all(a), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, channel_id=1
}
ENTRY main {
  p = f32[16,64] parameter(0)
  s = ((f32[16,64]), f32[16,64], u32[]) async-start(p), calls=exchange
  u = ((f32[16,64]), f32[16,64], u32[]) async-update(s)
  ROOT d = f32[16,64] async-done(u)
}
"""


def test_a_wrapped_asynchronous_collective_counts_once() -> None:
    [found] = collectives(load(HEAD + WRAPPED))
    assert found.bytes_per_device == pytest.approx(7 / 8 * KB4)


LOOPS = """
inner_condition {
  c = (s32[], f32[16,64]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
inner_body {
  b = (s32[], f32[16,64]) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[16,64] get-tuple-element(b), index=1
  one = s32[] constant(1)
  next = s32[] add(j, one)
  y = f32[16,64] all-reduce(x), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=add, use_global_device_ids=true, channel_id=1
  ROOT o = (s32[], f32[16,64]) tuple(next, y)
}
outer_condition {
  c = (s32[], f32[16,64]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(20)
  ROOT less = pred[] compare(i, n), direction=LT
}
outer_body {
  b = (s32[], f32[16,64]) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[16,64] get-tuple-element(b), index=1
  two = s32[] constant(2)
  next = s32[] add(j, two)
  zero = s32[] constant(0)
  init = (s32[], f32[16,64]) tuple(zero, x)
  w = (s32[], f32[16,64]) while(init), condition=inner_condition, body=inner_body
  y = f32[16,64] get-tuple-element(w), index=1
  ROOT o = (s32[], f32[16,64]) tuple(next, y)
}
yes { a = f32[16,64] parameter(0)  ROOT r = f32[16,64] all-reduce(a), replica_groups={}, to_apply=add, channel_id=2 }
no {
  a = f32[16,64] parameter(0)
  ROOT r = f32[16,64] all-to-all(a), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, channel_id=3
}
ENTRY main {
  p = f32[16,64] parameter(0)
  c = pred[] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[16,64]) tuple(zero, p)
  w = (s32[], f32[16,64]) while(init), condition=outer_condition, body=outer_body
  x = f32[16,64] get-tuple-element(w), index=1
  ROOT r = f32[16,64] conditional(c, x, x), true_computation=yes, false_computation=no
}
"""


def test_nested_loops_multiply_and_every_branch_counts() -> None:
    found = {c.kind + "@" + str(c.executions): c for c in collectives(load(HEAD + LOOPS))}
    in_loop, yes, no = found["all-reduce@30"], found["all-reduce@1"], found["all-to-all@1"]
    assert in_loop.bytes_per_device == pytest.approx(30 * 2 * 3 / 4 * KB4)
    assert in_loop.bytes_per_execution == pytest.approx(2 * 3 / 4 * KB4)
    assert not in_loop.in_conditional
    assert yes.in_conditional
    assert no.in_conditional
    assert yes.bytes_per_device == pytest.approx(2 * 7 / 8 * KB4)
    assert no.bytes_per_device == pytest.approx(7 / 8 * KB4)
    assert all(c.is_exact for c in found.values())


FUSED = """
fused {
  a = f32[16,64] parameter(0)
  n = f32[16,64] negate(a)
  ROOT r = f32[16,64] all-reduce(n), replica_groups=[2,4]<=[8], to_apply=add, use_global_device_ids=true, channel_id=1
}
ENTRY main {
  p = f32[16,64] parameter(0)
  ROOT f = f32[16,64] fusion(p), kind=kCustom, calls=fused
}
"""


def test_a_collective_inside_a_fusion_is_seen() -> None:
    [found] = collectives(load(HEAD + FUSED))
    assert found.bytes_per_device == pytest.approx(2 * 3 / 4 * KB4)


def test_a_module_that_names_no_partitions_has_as_many_devices_as_its_groups_name() -> None:
    head = HEAD.replace(", num_partitions=8", "")
    [found] = read(
        "p = f32[4] parameter(0)\n ROOT r = f32[4] all-reduce(p), replica_groups={{0,1,2}}, to_apply=add", head
    )
    assert found.num_devices == 3
    assert found.bytes_per_device == pytest.approx(2 * 2 / 3 * 16)


def test_cause_and_place_come_along() -> None:
    [found] = read(
        "p = f32[8] parameter(0)\n ROOT r = f32[8] all-reduce(p), replica_groups={}, to_apply=add, channel_id=1,"
        f' frontend_attributes={{{CAUSE_ATTRIBUTE}="dot.1 is partial over model"}},'
        ' metadata={op_name="jit(f)/dot" source_file="/home/me/model.py" source_line=31}'
    )
    assert found.cause == "dot.1 is partial over model"
    assert found.location == "model.py:31"
    assert found.op_name == "jit(f)/dot"
    assert "model.py:31" in str(found)


def test_causes_of_the_partitioner_come_first() -> None:
    module = load(
        f"{HEAD}ENTRY main {{\n p = f32[8] parameter(0)\n"
        " ROOT r = f32[8] all-reduce(p), replica_groups={}, to_apply=add\n}"
    )
    number = module.by_name("r").id
    assert collectives(module, causes={number: "because"})[0].cause == "because"
    assert collectives(SimpleNamespace(module=module, causes={number: "held"}))[0].cause == "held"


@pytest.mark.parametrize(
    ("op", "axes"),
    [
        ("all-reduce(p), replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=add", "model"),
        ("all-reduce(p), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=add", "data"),
        ("all-reduce(p), replica_groups={}, to_apply=add", "data,model"),
        ("all-reduce(p), replica_groups={{0,2},{1,3},{4,6},{5,7}}, to_apply=add", "model:(1)2"),
        ("all-reduce(p), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=add", "model:(2)2"),
        ("all-reduce(p), replica_groups={{0,5},{1,4},{2,7},{3,6}}, to_apply=add", ""),
        ("collective-permute(p), source_target_pairs={{0,1},{1,0}}", "model"),
        ("collective-permute(p), source_target_pairs={{0,5}}", "data,model"),
    ],
)
def test_groups_in_the_words_of_the_mesh(op: str, axes: str) -> None:
    module = load(f"{HEAD}ENTRY main {{ p = f32[8] parameter(0)\n ROOT r = f32[8] {with_device_ids(op)} }}")
    module.mesh = MeshInfo(("data", "model"), (2, 4))
    assert collectives(module)[0].axes == axes


def test_xlas_own_output_of_a_sharded_product(mesh_2x4) -> None:
    """[16,32] @ [32,8] contracted over `model`: each device all-reduces its [8,8] over four devices."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    x = jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh_2x4, P("data", "model")))
    w = jax.ShapeDtypeStruct((32, 8), jnp.float32, sharding=NamedSharding(mesh_2x4, P("model", None)))
    out = NamedSharding(mesh_2x4, P("data", None))
    compiled = jax.jit(jnp.dot, out_shardings=out).lower(x, w).compile()
    [found] = collectives(load(compiled.as_text()))
    assert (found.kind, found.group_size) == ("all-reduce", 4)
    assert found.bytes_per_device == pytest.approx(2 * 3 / 4 * 8 * 8 * 4)


@pytest.mark.parametrize(
    ("kind", "received"),
    [
        ("all-gather", 750.0),
        ("reduce-scatter", 750.0),
        ("all-to-all", 750.0),
        ("collective-broadcast", 750.0),
        ("all-reduce", 1500.0),
        ("collective-permute", 1000.0),
    ],
)
def test_bytes_received_in_a_group_of_four(kind: str, received: float) -> None:
    assert bytes_received(kind, 1000, 4) == received


OVER_MODEL = ((0, 1, 2, 3), (4, 5, 6, 7))
BLOCK = 4 * 8 * 4  # bytes of f32[4,8], one device's part of x


@pytest.mark.parametrize(
    ("function", "groups", "nbytes"),
    [
        ("psum", OVER_MODEL, 2 * 3 / 4 * BLOCK),
        ("all_gather", OVER_MODEL, 3 * BLOCK),
        ("psum_scatter", OVER_MODEL, 3 / 4 * BLOCK),
        ("all_to_all", OVER_MODEL, 3 / 4 * BLOCK),
        ("ppermute", None, BLOCK / 4),
    ],
)
def test_xlas_optimized_output_of_each_collective(
    mesh_2x4: Any, function: str, groups: Groups | None, nbytes: float
) -> None:
    """Its channels and flags say that the ids are devices', on each backend in its own way."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    arguments: dict[str, tuple[Any, ...]] = {"all_to_all": (0, 0), "ppermute": (((0, 1),),)}

    def region(x: jax.Array) -> jax.Array:
        made = getattr(lax, function)(x, "model", *arguments.get(function, ()))
        return made.reshape(-1, 1)

    mapped = jax.shard_map(
        region, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P("data", "model"), check_vma=False
    )
    compiled = jax.jit(mapped).lower(jax.ShapeDtypeStruct((8, 32), np.float32)).compile()
    [found] = collectives(load(compiled.as_text()))
    assert found.groups == groups
    assert found.pairs == (None if groups else ((0, 1), (4, 5)))
    assert found.bytes_per_device == pytest.approx(nbytes)
