"""A step gives one partitioned program, whichever of its dumps is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import AnnotationError, ExecutionError, LoadError


def training(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean(jax.nn.relu(x @ w["up"]) @ w["down"])

    value, gradient = jax.value_and_grad(loss)(w)
    return jax.tree.map(lambda a, b: a - b, w, gradient), value


def scanned(w: Any, x: Any) -> Any:
    @jax.jit
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) @ w.T, x.sum()

    return jax.lax.scan(layer, x, jnp.stack([w["up"], w["down"].T]))


def manual(w: Any, x: Any) -> Any:
    body = jax.shard_map(
        lambda x, w: jax.lax.psum(x @ w, "model"), in_specs=(P("data", "model"), P("model")), out_specs=P("data")
    )
    return body(x, w["up"]) @ w["down"]


STEPS = [training, scanned, manual]
W = {"up": (64, 256, P(None, "model")), "down": (256, 64, P("model"))}


def _lowered(step: Callable[..., Any], mesh: Mesh, **options: Any) -> tuple[Any, hs.Partitioned]:
    def struct(rows: int, columns: int, spec: Any) -> Any:
        return jax.ShapeDtypeStruct((rows, columns), jnp.float32, sharding=NamedSharding(mesh, spec))

    arguments = ({name: struct(*value) for name, value in W.items()}, struct(512, 64, P("data")))
    with jax.set_mesh(mesh):
        ours = hs.jit(step, **options).lower(*arguments).partitioned
        return jax.jit(step, **options).lower(*arguments), ours


def _said(partitioned: hs.Partitioned) -> list[tuple[Any, ...]]:
    # Not in order: readers of text keep the text's, and JAX's versions write the same program in several.
    return sorted((c.kind, str(c.shape), c.groups, c.pairs or (), c.executions) for c in partitioned.collectives)


@pytest.mark.parametrize("step", STEPS)
def test_every_dump_gives_what_jit_gives(step: Callable[..., Any], mesh_2x4: Mesh, tmp_path: Path) -> None:
    lowered, ours = _lowered(step, mesh_2x4)
    lowered.compile(compiler_options={"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True})
    [before] = tmp_path.glob("*.before_optimizations.txt")
    assert ours.collectives
    for dump in (lowered, lowered.as_text(), lowered.as_text("hlo")):
        assert _said(hs.partition(hs.load(dump))) == _said(ours)
    if step is manual and "manual_axes" not in before.read_text():  # so from JAX 0.12 on: no region can be told
        with pytest.raises(LoadError, match="load the module as JAX lowered it"):
            hs.load(before)
    else:
        assert _said(hs.partition(hs.load(before))) == _said(ours)


def test_outputs_that_were_given_a_sharding_keep_it(mesh_2x4: Mesh) -> None:
    rows = NamedSharding(mesh_2x4, P("data"))
    lowered, ours = _lowered(lambda w, x: (x @ w["up"], x * 2), mesh_2x4, out_shardings=(rows, None))
    for dump in (lowered, lowered.as_text(), lowered.as_text("hlo")):
        module = hs.load(dump)
        assert (module.open_outputs, module.open_parameters) == ((False, True), (False, False))
        assert _said(hs.partition(module)) == _said(ours)


def test_the_first_line_of_hlo_says_what_is_open() -> None:
    text = """HloModule m, allow_spmd_sharding_propagation_to_parameters={false,true},
        allow_spmd_sharding_propagation_to_output={true}, num_partitions=2
    ENTRY e {
      x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
      y = f32[8] parameter(1)
      ROOT z = f32[8] add(x, y)
    }"""
    module = hs.load(text.replace(",\n       ", ","))
    assert (module.open_outputs, module.open_parameters) == ((True,), (False, True))
    assert str(hs.propagate(module).shardings["y"]) == "{devices=[2]<=[2]}"
    assert hs.propagate(module, to_parameters=False).shardings["y"] is None


@pytest.mark.parametrize("step", STEPS)
def test_what_is_written_as_hlo_is_read_with_the_edge_that_it_had(step: Callable[..., Any], mesh_2x4: Mesh) -> None:
    lowered, ours = _lowered(step, mesh_2x4)
    text = hs.load(lowered).to_hlo_text()
    assert "allow_spmd_sharding_propagation_to_output={true" in text.partition("\n")[0]
    assert _said(hs.partition(hs.load(text))) == _said(ours)


def test_of_other_hlo_nothing_is_open() -> None:
    module = hs.load("HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] negate(x)\n}")
    assert (module.open_outputs, module.open_parameters) == (False, False)


def test_what_xla_compiled_is_priced_as_it_stands(mesh_2x4: Mesh, tmp_path: Path) -> None:
    lowered, _ = _lowered(training, mesh_2x4)
    compiled = lowered.compile(compiler_options={"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True})
    [after] = tmp_path.glob("*after_optimizations.txt")
    texts = {line.split(" = ")[0].strip() for line in compiled.as_text().splitlines() if " all-reduce(" in line}
    for module in (hs.load(after), hs.load(compiled)):
        found = hs.partition(module)
        assert {f"%{c.name}" for c in found.collectives if c.kind == "all-reduce"} == texts
        assert found.warnings == ("XLA compiled this module already: listed and priced as it stands",)
        assert found.peak_memory_bytes > 0
        with pytest.raises(ExecutionError, match="run the program that it was made from"):
            found.as_python()
        with pytest.raises(AnnotationError, match="before it is compiled"):
            hs.annotate(module, {"*": "{replicated}"})


def test_what_xla_compiled_for_one_device_is_split_once_it_is_annotated() -> None:
    x, w = np.arange(64, dtype=np.float32).reshape(8, 8), np.eye(8, dtype=np.float32)[::-1]
    text = """HloModule m, is_scheduled=true
    ENTRY e {
      x = f32[8,8] parameter(0)
      w = f32[8,8] parameter(1)
      d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT y = f32[8,8] negate(d)
    }"""
    module = hs.load(text)
    found = hs.partition(hs.annotate(module, {"x": "{devices=[4,1]<=[4]}"}))
    assert not found.warnings
    assert str(found.module.by_name("x").shape) == "f32[2,8]"
    np.testing.assert_array_equal(found.run(x, w), -(x @ w))
    assert module.is_scheduled  # what was given is as it was
