"""Exported plans: pasted into a function and compiled by a stock `jax.jit`, they give the numbers of one device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions
from hlosharding.plans import ExportedPlan, export_plan

AXES = ("data", "model")
SOURCE = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P


def mlp(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


def deep(x, w1, w2):
    for w in (w1, w1, w1):
        x = jnp.sin(x @ w)
    return x + jnp.sum(w2)


def scanned(x, w1, w2):
    def body(c, w):
        return jnp.cos(c @ w), None
    return jax.lax.scan(body, x, jnp.stack([w1, w1]))[0] @ w2


def trained(x, w1, w2):
    return jax.grad(lambda w: jnp.sum(mlp(x, w, w2) ** 2))(w1)
"""
ARRAYS = [np.random.default_rng(n).normal(size=(16, 16)).astype(np.float32) for n in range(3)]


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), AXES)


def imported(folder: Path, text: str) -> ModuleType:
    """A module of that source, in a file as a user's."""
    file = folder / f"model{abs(hash(text))}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def pasted(text: str, plan: ExportedPlan) -> str:
    """The source with the constraints written in, as the plan says: the expression at the line becomes another one."""
    lines = text.split("\n")
    for one in plan.constraints:
        number = int(one.location.rpartition(":")[2]) - 1
        assert one.expression in lines[number]
        constrained = f"jax.lax.with_sharding_constraint({one.expression}, {one.spec!r})"
        lines[number] = lines[number].replace(one.expression, constrained)
    return "\n".join(lines)


def run_stock(plan: ExportedPlan, function: Callable[..., Any], mesh: Mesh) -> tuple[Any, Any]:
    """What a stock `jax.jit` makes of the function under a plan, and its result."""
    jitted = jax.jit(function, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    with jax.set_mesh(mesh):
        compiled = jitted.lower(*ARRAYS).compile()
        return compiled, jitted(*ARRAYS)


def agrees(result: Any, function: Callable[..., Any]) -> bool:
    expected = np.asarray(jax.jit(function)(*ARRAYS))
    return bool(np.max(np.abs(np.asarray(result) - expected)) <= 1e-5 * np.max(np.abs(expected)))


MEGATRON = (P("data"), P(None, "model"), P("model"))


def test_the_edge_alone_is_enough_for_a_plan_that_follows_from_it(tmp_path: Path, mesh: Mesh) -> None:
    model = imported(tmp_path, SOURCE)
    module = hs.trace(model.mlp, mesh=mesh, in_shardings=MEGATRON)(*ARRAYS)
    plan = export_plan(hs.partition(module, machine=hs.machines.h100(8)))
    assert (plan.in_specs, plan.out_specs) == (MEGATRON, (P("data"),))
    assert (plan.constraints, plan.unsaid) == ((), ())
    compiled, result = run_stock(plan, model.mlp, mesh)
    assert agrees(result, model.mlp)
    # One all-reduce of 8 x 16 floats among four, in XLA's program and in ours.
    for beside in (plan.compare(compiled), plan.compare()):
        assert beside.before.comm_bytes == beside.after.comm_bytes == 2 * 3 / 4 * 8 * 16 * 4


@pytest.mark.parametrize("name", ["mlp", "deep", "scanned"])
def test_constraints_reach_what_the_edge_does_not(tmp_path: Path, mesh: Mesh, name: str) -> None:
    """All arguments are whole, and yet the hidden values are to be split: XLA has to be told so, once."""
    model = imported(tmp_path, SOURCE)
    function = getattr(model, name)
    whole = dict.fromkeys(("x", "w1", "w2"), P())
    module = hs.trace(function, mesh=mesh, in_shardings=(P(), P(), P()), out_shardings=P())(*ARRAYS)
    values = [i.name for i in module.instructions if i.opcode in ("tanh", "sine", "cosine")]
    annotated = hs.annotate(module, dict.fromkeys(values, P("data", "model")), mesh=mesh)
    # As propagated: where programs are chosen by their prices, rows of the result of `mlp` are split over all devices,
    # which XLA has to be told, too.
    options = PartitionOptions(only_propagated=True)
    plan = export_plan(hs.partition(annotated, machine=hs.machines.h100(8), options=options))
    assert set(plan.in_specs) == set(whole.values())
    assert len(plan.constraints) == 1
    assert plan.constraints[0].expression.startswith(("jnp.tanh(", "jnp.sin(", "jnp.cos("))
    assert plan.constraints[0].spec == P("data", "model")
    assert len(plan.constraints[0].values) == len(values)
    reached = hs.propagate(plan.stock).shardings
    wanted = hs.HloSharding.named(mesh, P("data", "model"), 2)
    assert all(reached[value] == wanted for value in values)
    assert any(hs.propagate(module).shardings[value] != wanted for value in values)
    constrained = getattr(imported(tmp_path, pasted(SOURCE, plan)), name)
    compiled, result = run_stock(plan, constrained, mesh)
    assert agrees(result, function)
    # XLA computes a tile of the product now, not all of it.
    assert plan.compare(compiled).before.flops < plan.compare(run_stock(plan, function, mesh)[0]).before.flops


def test_gradients_have_no_expression_and_that_is_said(tmp_path: Path, mesh: Mesh) -> None:
    model = imported(tmp_path, SOURCE)
    module = hs.trace(model.trained, mesh=mesh, in_shardings=(P(), P(), P()), out_shardings=P())(*ARRAYS)
    [last] = [i.name for i in module.instructions if i.opcode == "transpose" and i.shape.rank == 2][-1:]
    annotated = hs.annotate(module, {last: P("model", "data")}, mesh=mesh)
    plan = export_plan(hs.partition(annotated, machine=hs.machines.h100(8)))
    assert any("no expression of its own makes it" in line for line in plan.unsaid)
    assert "Left to XLA, or not reached" in str(plan)


def test_one_expression_with_several_layouts_is_said(tmp_path: Path, mesh: Mesh) -> None:
    model = imported(tmp_path, SOURCE)
    module = hs.trace(model.deep, mesh=mesh, in_shardings=(P(), P(), P()), out_shardings=P())(*ARRAYS)
    first, second, third = [i.name for i in module.instructions if i.opcode == "sine"]
    layouts = {first: P("data"), second: P(None, "data"), third: P("model")}
    plan = export_plan(hs.partition(hs.annotate(module, layouts, mesh=mesh), machine=hs.machines.h100(8)))
    assert any("its expression makes 3 values that are to be laid out differently" in line for line in plan.unsaid)


def test_what_has_no_partition_spec_is_left_to_xla_and_said() -> None:
    mesh = AbstractMesh((8,), ("d",))
    quarters = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
    uneven = "{devices=[8]<=[8]}"
    traced = hs.trace(lambda x, y: (2 * x, y + 1), mesh=mesh, in_shardings=(quarters, uneven))
    plan = export_plan(traced(jnp.ones((8, 8)), jnp.ones(12)))
    assert plan.in_specs == (None, None)
    assert any("only part" in line and line.startswith("x:") for line in plan.unsaid)
    assert any("dim 0 of [12] is not cut into equal pieces" in line for line in plan.unsaid)
    assert plan.stock.open_parameters == (True, True)


# ---- the text


def executed(plan: ExportedPlan, **names: Any) -> dict[str, Any]:
    found = dict(names)
    exec(compile(str(plan), "plan.py", "exec"), found)
    return found


class State(NamedTuple):
    mean: Any
    count: Any


def nested(params: Any, state: Any, scale: Any) -> Any:
    return {"new": [p * scale for p in params["w"]], "state": state, "none": None}


def test_the_text_says_what_the_values_are(mesh: Mesh) -> None:
    arguments = ({"w": [jnp.ones((8, 8)), jnp.ones((8, 4))]}, [jnp.ones(8), jnp.ones(4)], jnp.ones(()))
    shardings = ({"w": [P("data"), P(None, "model")]}, [P("model"), P()], P())
    plan = export_plan(hs.trace(nested, mesh=mesh, in_shardings=shardings)(*arguments))
    found = executed(plan)
    assert found["in_shardings"] == plan.in_shardings
    assert found["out_shardings"]["new"] == plan.out_shardings["new"]
    jitted = jax.jit(nested, in_shardings=found["in_shardings"], out_shardings=found["out_shardings"])
    assert jax.tree.map(np.asarray, jitted(*arguments)["state"])[1].shape == (4,)
    assert str(plan) == str(export_plan(hs.trace(nested, mesh=mesh, in_shardings=shardings)(*arguments)))


def test_structures_of_other_libraries_are_made_from_the_arguments(mesh: Mesh) -> None:
    arguments = ({"w": [jnp.ones((8, 8))]}, State(jnp.ones((8, 2)), jnp.ones((4, 4))), jnp.ones(()))
    shardings = ({"w": [P("data")]}, State(P("model"), P(None, "data")), P())
    plan = export_plan(hs.trace(nested, mesh=mesh, in_shardings=shardings)(*arguments))
    found = executed(plan)
    assert found["in_shardings"](*arguments) == plan.in_shardings
    assert found["out_shardings"](nested(*arguments)) == plan.out_shardings


class Part(IntEnum):
    ENCODER = 0
    DECODER = 1


def test_keys_that_do_not_read_as_they_are_printed_are_left_to_the_arguments(mesh: Mesh) -> None:
    arguments = ({Part.ENCODER: jnp.ones((8, 8)), Part.DECODER: jnp.ones((8, 4))},)
    shardings = ({Part.ENCODER: P("data"), Part.DECODER: P(None, "model")},)

    def product(w: Any) -> Any:
        return w[Part.ENCODER] @ w[Part.DECODER]

    plan = export_plan(hs.trace(product, mesh=mesh, in_shardings=shardings)(*arguments))
    assert executed(plan)["in_shardings"](*arguments) == plan.in_shardings


def test_dropped_arguments_and_random_keys(mesh: Mesh) -> None:
    def noisy(key: Any, unused: Any, x: Any) -> Any:
        return x + jax.random.normal(key, x.shape)

    arguments = jax.random.key(0), jnp.ones(3), jnp.ones((8, 4))
    plan = export_plan(hs.trace(noisy, mesh=mesh, in_shardings=(P(), None, P("data")))(*arguments))
    jitted = jax.jit(noisy, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    np.testing.assert_array_equal(np.asarray(jitted(*arguments)), np.asarray(jax.jit(noisy)(*arguments)))


def test_devices_in_another_order(mesh: Mesh) -> None:
    plan_file = hs.PlanFile.parse("device_ids = [3, 2, 1, 0]\n[mesh]\nd = 4\n[annotations]\nx = 'P(d)'")
    module = plan_file.apply(hs.trace(lambda x: 2 * x)(jnp.ones(8)))
    plan = export_plan(module)
    assert [d.id for d in plan.jax_mesh.devices.flat] == [3, 2, 1, 0]
    assert executed(plan)["in_shardings"] == plan.in_shardings


HOSTILE = """HloModule m
ENTRY e {
  x = f32[8] parameter(0), metadata={op_name="a\\n\\"\\"\\"\\nraise SystemExit"}
  ROOT y = f32[8] negate(x), metadata={op_name="z" source_file="/etc/passwd" source_line=1}
}"""


def test_a_dump_gives_flat_shardings_and_its_names_are_data(tmp_path: Path) -> None:
    module = hs.annotate(
        hs.load(HOSTILE), {"x": "{devices=[4]<=[4]}", "y": "{devices=[2,2]<=[4] last_tile_dim_replicate}"}
    )
    plan = export_plan(module, path=tmp_path / "plan.py")
    assert (tmp_path / "plan.py").read_text() == str(plan)
    found = executed(plan)
    assert found["in_shardings"] == plan.in_shardings
    assert [s.spec for s in found["in_shardings"]] == [P(("axis0", "axis1"))]
    assert "root:" not in str(plan)


def test_a_compiled_program_has_no_plan_left() -> None:
    compiled = hs.load(jax.jit(lambda x: x + 1).lower(jnp.ones(4)).compile().as_text())
    compiled.num_partitions = 2
    with pytest.raises(hs.PlanError, match="was split already"):
        export_plan(compiled)
