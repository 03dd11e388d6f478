"""Devices that hold copies leave a loop, and take a branch, together: by a sync where that is not plain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, get_abstract_mesh
from jax.sharding import NamedSharding as Named
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ModuleError
from hlosharding.ir import Instruction
from hlosharding.partitioner import PartitionOptions
from hlosharding.spmd import CAUSE_ATTRIBUTE
from hlosharding.spmd.uniformity import integers_of
from tests.support.split_programs import mark, right

# Sizes that six devices do not divide, in an order that is no mesh's: what lies where is beyond the verifier.
N, ODD, OTHER = 7, "[3,1,2]5,1,0,2,4,3 copies", "[3,1,2]<=[6] copies"
MATRIX, STATE = f"f32[{N},{N}]", f"(f32[{N},{N}], s32[])"

LOOP = """
step {
  s = STATE parameter(0)
  x = MATRIX get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  y = MATRIX transpose(x), dimensions={1,0}OTHER
  part = f32[] constant(0.7)
  parts = MATRIX broadcast(part), dimensions={}
  z = MATRIX multiply(y, parts)ODD
  ROOT t = STATE tuple(z, m)
}
going {
  s = STATE parameter(0)
  x = MATRIX get-tuple-element(s), index=0
  a = MATRIX abs(x)
  first = f32[] constant(0)
  r = f32[] reduce(a, first), dimensions={0,1}, to_apply=KIND_f32
  enough = f32[] constant(0.5)
  ROOT p = pred[] compare(r, enough), direction=GT
}"""


def filled(text: str, kind: str = "add") -> str:
    words = {"STATE": STATE, "MATRIX": MATRIX, "OTHER": mark(OTHER), "ODD": mark(ODD), "KIND": kind}
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def syncs(local: hs.Partitioned) -> list[Any]:
    causes = [(i, i.frontend_attributes.get(CAUSE_ATTRIBUTE, "")) for i in local.module.instructions]
    return [i for i, cause in causes if cause.startswith("sync of")]


@pytest.mark.parametrize("kind", ["add", "max"])
def test_a_loop_until_a_number_is_small_enough(kind: str) -> None:
    body = """
        x = MATRIX parameter(0)ODD
        n = s32[] constant(0)
        s = STATE tuple(x, n)
        w = STATE while(s), condition=going, body=step
        g = MATRIX get-tuple-element(w), index=0
        k = s32[] get-tuple-element(w), index=1
        ROOT t = STATE tuple(g, k)"""
    local = right(filled(body), computations=filled(LOOP, kind), devices=6, objective="bytes")
    [sync] = syncs(local)
    assert sync.is_root
    assert sync.replica_groups == ((0, 1, 2, 3, 4, 5),)


def test_a_loop_whose_condition_is_plainly_the_same_has_no_sync() -> None:
    """The same program with tiles that are split evenly: copies can be followed."""
    even = filled(LOOP).replace(f"[{N},{N}]", "[6,6]")
    local = right(
        filled("""
        x = MATRIX parameter(0)ODD
        n = s32[] constant(0)
        s = STATE tuple(x, n)
        w = STATE while(s), condition=going, body=step
        ROOT g = MATRIX get-tuple-element(w), index=0""").replace(f"[{N},{N}]", "[6,6]"),
        computations=even,
        devices=6,
    )
    assert not syncs(local)


def test_a_loop_in_a_loop() -> None:
    """The inner loop scales down to a bound, the outer one until that has taken a number of trips in all."""
    outer = """
    again {
      s = STATE parameter(0)
      x = MATRIX get-tuple-element(s), index=0
      n = s32[] get-tuple-element(s), index=1
      three = f32[] constant(3)
      threes = MATRIX broadcast(three), dimensions={}
      up = MATRIX multiply(x, threes)ODD
      u = STATE tuple(up, n)
      ROOT w = STATE while(u), condition=going, body=step
    }
    unfinished {
      s = STATE parameter(0)
      x = MATRIX get-tuple-element(s), index=0
      n = s32[] get-tuple-element(s), index=1
      most = s32[] constant(20)
      first = f32[] constant(-1)
      r = f32[] reduce(x, first), dimensions={0,1}, to_apply=max_f32
      bound = f32[] constant(50)
      small = pred[] compare(r, bound), direction=LT
      few = pred[] compare(n, most), direction=LT
      ROOT p = pred[] and(small, few)
    }"""
    body = """
        x = MATRIX parameter(0)ODD
        n = s32[] constant(0)
        s = STATE tuple(x, n)
        w = STATE while(s), condition=unfinished, body=again
        g = MATRIX get-tuple-element(w), index=0
        k = s32[] get-tuple-element(w), index=1
        ROOT t = STATE tuple(g, k)"""
    assert len(syncs(right(filled(body), computations=filled(LOOP + outer), devices=6, objective="bytes"))) == 2


@pytest.mark.parametrize("limit", [-100, 100])
@pytest.mark.parametrize("kind", ["pred", "s32"])
def test_a_branch_on_a_sum_of_what_was_moved(kind: str, limit: int) -> None:
    """Copies of the moved matrix are each put together from pieces; branches move it on."""
    chooser = "p" if kind == "pred" else "index"
    called = "true_computation=on, false_computation=off" if kind == "pred" else "branch_computations={off, on}"
    body = f"""
        x = MATRIX parameter(0)OTHER
        y = MATRIX transpose(x), dimensions={{1,0}}ODD
        first = f32[] constant(0)
        r = f32[] reduce(y, first), dimensions={{0,1}}, to_apply=add_f32
        limit = f32[] constant({limit})
        p = pred[] compare(r, limit), direction=GT
        index = s32[] convert(p)
        ROOT c = MATRIX conditional({chooser}, y, y), {called}ODD"""
    branches = """
    on { x = MATRIX parameter(0)
      t = MATRIX transpose(x), dimensions={1,0}OTHER
      ROOT r = MATRIX tanh(t)ODD }
    off { x = MATRIX parameter(0)
      ROOT t = MATRIX negate(x)ODD }"""
    # Large enough that no device gathers the matrix to add it up alone, too small to be cut among copies.
    program, called_program = (filled(text).replace(MATRIX, "f32[20,20]") for text in (body, branches))
    local = right(program, computations=called_program, devices=6, objective="bytes")
    [sync] = syncs(local)
    assert [u.opcode for u in sync.users] == ["conditional"]


def test_members_of_a_manual_group_sync_among_themselves(cpu_devices: list[Any]) -> None:
    """Each group makes its own number of trips: 25 * 0.7 ** 11 < 0.5 and 1250 * 0.7 ** 22 < 0.5, one less is more."""
    mesh = Mesh(np.array(cpu_devices)[[5, 1, 0, 2, 4, 3, 7, 6]].reshape(2, 2, 2), ("a", "b", "c"))

    def split(x: jax.Array, *axes: str) -> jax.Array:
        return lax.with_sharding_constraint(x, Named(get_abstract_mesh(), P(axes or "b")))

    def inner(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def smaller(state: Any) -> Any:
            return split(split(state[0].T, "b", "c") * 0.7), state[1] + 1

        found, trips = lax.while_loop(lambda s: s[0].sum() > 0.5, smaller, (split(x), 0))
        return found, trips[None]

    region = jax.shard_map(
        inner, mesh=mesh, in_specs=P("a"), out_specs=(P("a"), P("a")), axis_names={"a"}, check_vma=False
    )
    x = np.concatenate([np.full((5, 5), 1.0, "f"), np.full((5, 5), 50.0, "f")])
    local = hs.partition(
        hs.trace(region, mesh=mesh, in_shardings=(P("a"),))(x), options=PartitionOptions(objective="bytes")
    )
    assert [v.replica_groups for v in syncs(local)] == [((0, 1, 2, 3), (4, 5, 6, 7))]
    found, trips = local.run(x)
    assert trips.tolist() == [11, 22]
    np.testing.assert_allclose(found, x * np.repeat(0.7 ** np.array(trips), 5)[:, None], rtol=1e-5)


def test_a_users_own_condition_per_device_gets_no_sync(mesh_2x4: Mesh) -> None:
    def region(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: x.sum() < 100, lambda x: lax.psum(x, "model") + 1, x)

    program: Callable[..., Any] = jax.shard_map(
        region, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P("data", "model"), check_vma=False
    )
    with pytest.raises(ModuleError, match=r"condition of %.* may differ"):
        hs.partition(hs.trace(program, mesh=mesh_2x4)(jnp.ones((4, 8))))


def evaluations(loops: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it is asked on which devices a value is the same, where as many loops follow one another."""
    lines, last = list[str](), "x"
    for n in range(loops):
        lines += [f"begin{n} = s32[] constant(0)", f"first{n} = STATE tuple({last}, begin{n})"]
        lines.append(f"last{n} = STATE while(first{n}), condition=going{n}, body=step{n}")
        lines.append(f"g{n} = MATRIX get-tuple-element(last{n}), index=0")
        last = f"g{n}"
    loop = filled(LOOP, "sum").replace("_f32", "")
    called = [loop.replace("step {", f"step{n} {{").replace("going {", f"going{n} {{") for n in range(loops)]
    body = filled("\n".join(["x = MATRIX parameter(0)ODD", *lines, f"ROOT t = MATRIX copy({last})ODD"]))
    added = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}"
    asked = list[object]()

    def counted(inst: Instruction, *rest: Any) -> Any:
        asked.append(inst)
        return integers_of(inst, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("hlosharding.spmd.uniformity.integers_of", counted)
        module = hs.load("\n".join(["HloModule m, num_partitions=6", added, *called, f"ENTRY e {{\n{body}\n}}"]))
        local = hs.partition(module, options=PartitionOptions(objective="bytes"))
    assert len(syncs(local)) == loops
    return len(asked)


def test_twice_as_many_loops_take_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert evaluations(6, monkeypatch) < 2.1 * evaluations(3, monkeypatch)
