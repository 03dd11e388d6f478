"""What the batch is split along stays split wherever it flows, whatever weights are split along: but for their axes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import hlosharding as hs
from hlosharding.ir import Module
from hlosharding.schedule import StageAxes
from hlosharding.schedule.cutting.kept_splits import flows_of, keep_split
from hlosharding.sharding import HloSharding, MeshInfo
from tests.support.fused_attention import Sizes, attention_step

WEIGHTS, ROWS = jax.ShapeDtypeStruct((2, 8, 8), jnp.float32), jax.ShapeDtypeStruct((16, 8), jnp.float32)


def products() -> Module:
    """Two of them; the parameters are weights and rows."""

    def product(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weights[0]) @ weights[1]

    return hs.trace(product)(WEIGHTS, ROWS)


def annotated(module: Module, *shardings: str) -> list[HloSharding]:
    """The module's parameters are laid out so on eight devices."""
    found = [HloSharding.parse(text) for text in shardings]
    module.num_partitions = 8
    module.shardings = {p.id: lies for p, lies in zip(module.entry.parameters, found, strict=True)}
    return found


def test_weights_that_are_split_over_the_same_devices_do_not_take_it_away() -> None:
    module = products()
    said = annotated(module, "{devices=[1,1,8]<=[8]}", "{devices=[8,1]<=[8]}")
    axes = StageAxes.of_tiles(said[1:])
    kept = keep_split(module, axes.mesh, flows_of({1: 0}, said, axes))
    assert [value.opcode for value in kept] == ["dot", "dot"]
    assert [inst.id for inst in module.instructions] == list(range(len(list(module.instructions))))
    found = hs.partition(hs.propagate(module, to_outputs=True))
    assert {c.kind for c in found.collectives} == {"all-gather"}
    assert not any(c.shape.dims[0] == 16 for c in found.collectives)


def test_a_batch_that_lies_whole_is_constrained_to_nothing() -> None:
    module = products()
    said = annotated(module, "{devices=[1,1,8]<=[8]}", "{replicated}")
    axes = StageAxes.of_tiles(said[1:])
    assert flows_of({1: 0}, said, axes) == []
    assert keep_split(module, axes.mesh, []) == {}


def test_an_axis_of_weights_is_theirs_where_their_split_flows() -> None:
    """Rows over both axes, columns of the first weight over one: its product has the columns, the next one rows."""
    module = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(
        jnp.ones((8, 32)), jnp.ones((32, 8)), jnp.ones((16, 8))
    )
    mesh = MeshInfo(("data", "tensor"), (2, 4))
    over = [(None, "tensor"), ("tensor",), (("data", "tensor"),)]
    said = annotated(module, *(str(HloSharding.named(mesh, spec, 2).without_names()) for spec in over))
    axes = StageAxes(mesh, frozenset({"tensor"}))
    kept = keep_split(module, mesh, flows_of({2: 0}, said, axes))
    shardings = {value.shape.dims: str(module.sharding(call)) for value, call in kept.items()}
    assert shardings == {(16, 32): "{devices=[2,4]<=[8]}", (16, 8): "{devices=[8,1]<=[8]}"}


def test_what_calls_give_stays_split_as_the_batch_that_they_take() -> None:
    """cuDNN's flash attention, through which propagation carries no sharding."""
    module = attention_step(Sizes(), sharding="{devices=[8,1,1,1]<=[8]}")
    said = [module.sharding(parameter) for parameter in module.entry.parameters]
    axes = StageAxes.of_tiles(said)
    keep_split(module, axes.mesh, flows_of(dict.fromkeys(range(4), 0), said, axes))
    local = hs.partition(hs.propagate(module, to_outputs=True), num_partitions=8)
    assert not hs.collectives(local)
    assert all(leaf.dims[0] == 1 for leaf in local.module.entry.root.shape.leaves)


def test_what_flash_attention_gives_is_split_by_the_heads_of_weights() -> None:
    """Heads over an axis that the batch has not; the parameters stand for weights."""
    module = attention_step(Sizes(), sharding="{devices=[1,1,4,1]<=[4]}")
    said = [module.sharding(parameter) for parameter in module.entry.parameters]
    mesh = MeshInfo(("tensor",), (4,))
    assert keep_split(module, mesh, flows_of({}, said, StageAxes(mesh))) == {}
    keep_split(module, mesh, flows_of({}, said, StageAxes(mesh, of_calls=frozenset({"tensor"}))))
    local = hs.partition(hs.propagate(module, to_outputs=True), num_partitions=4)
    assert not hs.collectives(local)
    assert [leaf.dims[1] for leaf in local.module.entry.root.shape.leaves] == [2, 1, 1, 2]
