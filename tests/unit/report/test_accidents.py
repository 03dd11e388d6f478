"""What is whole though nobody asked is named with an annotation that splits it; what somebody asked for is not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.report import accidents_view, to_record

MESH = jax.sharding.AbstractMesh((2, 4), ("data", "model"))


def mlp(x: jax.Array, layers: list[jax.Array], table: jax.Array) -> jax.Array:
    for w in layers:
        x = jnp.sin(x @ w)
    return x + jnp.cos(table).sum(axis=0)


def partitioned(table: jax.P | None, layer: jax.P | None = None) -> hs.Partitioned:
    """The layers have 4 MiB each, the table has 2 MiB."""
    given = jax.P("data"), [layer, layer], table
    arrays = jnp.ones((64, 1024)), [jnp.ones((1024, 1024))] * 2, jnp.ones((512, 1024))
    module = hs.trace(mlp, mesh=MESH, in_shardings=given)(*arrays)
    return hs.partition(hs.propagate(module, to_parameters=False), machine=hs.machines.h100(8))


def named(local: hs.Partitioned, over: int = 2**20) -> set[str]:
    return {value.name for value in hs.replicated_by_accident(local, over=over)}


def test_what_nobody_annotated_is_an_accident() -> None:
    assert named(partitioned(None)) == {"layers[0]", "layers[1]", "table"}
    assert named(partitioned(None), over=3 * 2**20) == {"layers[0]", "layers[1]"}


def test_what_an_annotation_asks_for_is_none() -> None:
    assert named(partitioned(jax.P())) == {"layers[0]", "layers[1]"}  # nor what is made of it
    assert named(partitioned(jax.P(), layer=jax.P())) == set()
    assert named(partitioned(jax.P("model"), layer=jax.P(None, "model"))) == set()


def test_layers_share_a_row_and_the_remedy_splits() -> None:
    local = partitioned(jax.P())
    [row] = to_record(accidents_view(local))["accidents"]
    assert (row["times"], row["bytes"]) == (2, 8 * 2**20)
    name, text = row["remedy"].removeprefix("annotate %").split("=", 1)
    assert local.propagation is not None
    source = local.propagation.source
    assert (row["value"], source.by_name(name).path) == (name, "layers[0]")
    after = hs.propagate(hs.annotate(source, {name: text})).shardings[name]
    assert after is not None
    assert after.num_tiles > 1


@pytest.mark.parametrize(("table", "count"), [(None, 1), (jax.P("model"), 0)])
def test_the_report_says_the_worst(table: jax.P | None, count: int) -> None:
    layer = None if count else jax.P(None, "model")
    worst = to_record(hs.report(partitioned(table, layer)))["findings"]["worst"]
    found = [one for one in worst if one["what"] == "whole, and nobody asked"]
    assert len(found) == count
    for one in found:
        assert one["figure"] == 8 * 2**20
        assert one["which"] == "layers[*] f32[1024,1024], on every device"
        assert one["remedy"].startswith("annotate %layers")


def test_of_a_loop_that_is_the_result() -> None:
    """XLA's pass puts a copy behind it, which is in nobody's program: the loop's value is asked about."""
    made = hs.partition(
        hs.propagate(
            hs.load("""HloModule m, num_partitions=2
            body { x = f32[8] parameter(0)  ROOT y = f32[8] tanh(x) }
            condition { x = f32[8] parameter(0)  ROOT p = pred[] constant(false) }
            ENTRY e {
              x = f32[8] parameter(0), sharding={replicated}
              ROOT w = f32[8] while(x), condition=condition, body=body
            }""")
        )
    )
    assert hs.replicated_by_accident(made, over=0) == []
