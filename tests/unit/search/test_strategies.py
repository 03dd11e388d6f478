"""Strategies: what they split is what runs, they compose, users write their own, and bad ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.cost import machines
from hlosharding.errors import AnnotationError, HloShardingError, ScheduleError
from hlosharding.schedule import StageProgram
from hlosharding.schedule.steps import Apply
from hlosharding.search import STRATEGIES, Plan, Planner, fsdp, megatron, plan_space
from hlosharding.search.strategies import Strategy, compose, over_batch, over_weights, split_arguments
from hlosharding.search.updates import find_only_updated
from tests.support.training_steps import perceptron, traced

BATCH = frozenset({4})


def arguments() -> tuple[Any, Any]:
    keys = jax.random.split(jax.random.key(0), 5)
    return [jax.random.normal(k, (16, 16)) * 0.3 for k in keys[1:]], jax.random.normal(keys[0], (32, 16))


def module() -> hs.Module:
    return hs.trace(perceptron)(*arguments())


def own(program: hs.Module, ways: Mapping[str, int], batch: frozenset[int]) -> dict[str | int, Any]:
    """Two of the four weights over data and tensor, one named by its path, one by its number."""
    return {"weights[0]": P(("data", "tensor")), 1: P("data", "tensor")}


def check(plan: Plan, strategies: Mapping[str, Strategy], devices: list[Any]) -> None:
    """A plan computes what one device does."""
    weights, x = arguments()
    schedule = Planner(module(), ["x"], strategies=strategies).schedule(plan)
    schedule.verify(machines.h100(plan.num_devices))
    expected = jax.tree.leaves(jax.jit(perceptron)(weights, x))
    for found in (schedule.run_reference(*weights, x), schedule.compile(devices)(*weights, x)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("plan", [Plan(4, 2), Plan(2, 2, 2, 2), Plan(4, 1, 2, 4)], ids=str)
@pytest.mark.parametrize("strategy", ["own", "fsdp"])
def test_a_strategy_computes_what_one_device_does(plan: Plan, strategy: str, cpu_devices: list[Any]) -> None:
    check(replace(plan, strategy=strategy), {"own": own}, cpu_devices)


@pytest.mark.parametrize("name", ["transformer", "scanned_layers"])
def test_fsdp_of_any_step(name: str) -> None:
    step, program = traced(name)
    found = Planner(program, step.batch).schedule(Plan(2, 2, strategy="fsdp"))
    expected = jax.tree.leaves(jax.jit(step.function)(*step.arguments))
    ours = found.run_reference(*jax.tree.leaves(step.arguments))
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_fsdp_holds_less_and_gathers_weights_where_they_are_read() -> None:
    weight, rows = (jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((256, 256), (4096, 256)))
    planner, machine = Planner(hs.trace(perceptron)([weight] * 4, rows), ["x"]), machines.h100(4)
    usual, sharded = (planner.schedule(Plan(4, strategy=name), machine) for name in ("", "fsdp"))
    tiles = [sum(kind.tile_bytes for kind in parameters_of(each)[:4]) for each in (usual, sharded)]
    assert tiles[1] * 4 == tiles[0]
    peaks = [each.simulate(machine).peak_memory_bytes for each in (usual, sharded)]
    assert peaks[1] < peaks[0]
    found = [opcodes(each) & {"all-gather", "all-reduce", "reduce-scatter", "all-to-all"} for each in (usual, sharded)]
    assert found == [{"all-reduce"}, {"all-reduce", "all-gather", "reduce-scatter"}]  # the loss is reduced in any case


def parameters_of(schedule: hs.Schedule) -> list[Any]:
    return [parameter.type for parameter in schedule.functions["main"].parameters]


def opcodes(schedule: hs.Schedule) -> set[str]:
    ops = [step.op for step in schedule.steps() if isinstance(step, Apply)]
    return {inst.opcode for op in ops if isinstance(op, StageProgram) for inst in op.program.module.instructions}


def test_moments_lie_as_the_weights_they_are_of() -> None:
    step, program = traced("transformer")
    found = Planner(program, step.batch).annotate(Plan(2, 2, strategy="fsdp"))
    shardings = {p.op_name: found.sharding(p) for p in found.entry.parameters}
    weights = [path for path in shardings if path.startswith("params")]
    assert weights
    for path in weights:
        for moment in ("m", "v"):
            assert shardings[path] == shardings[path.replace("params", moment, 1)]


# ---- laws of composition

DATA, TENSOR = over_batch("data"), over_weights("tensor")


def program_of(
    strategy: Strategy, ways: Mapping[str, int], program: hs.Module
) -> tuple[Mapping[str, Any], hs.Partitioned]:
    """Shardings by name, and the program."""
    annotated = split_arguments(program, ways, strategy(program, ways, BATCH))
    is_open = [annotated.sharding(p) is None for p in annotated.entry.parameters]
    found = hs.propagate(annotated, to_outputs=True, to_parameters=is_open)
    return found.shardings, hs.partition(found, num_partitions=annotated.num_partitions)


def same(first: tuple[Any, hs.Partitioned], second: tuple[Any, hs.Partitioned]) -> None:
    """Equal shardings, bytes and results."""
    (shardings, one), (others, other) = first, second
    assert shardings == others
    assert one.comm_bytes_per_device == other.comm_bytes_per_device
    weights, x = arguments()
    expected = jax.tree.leaves(jax.jit(perceptron)(weights, x))
    found = [jax.tree.leaves(each.run_reference(*weights, x)) for each in (one, other)]
    for ours, theirs, truth in zip(*found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_allclose(ours, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("data", "tensor"), [(2, 2), (4, 2), (2, 4)])
def test_over_data_and_then_tensors_is_over_tensors_and_then_data(data: int, tensor: int) -> None:
    program, ways = module(), {"data": data, "tensor": tensor}
    same(program_of(compose(DATA, TENSOR), ways, program), program_of(compose(TENSOR, DATA), ways, program))


def test_one_way_changes_nothing() -> None:
    program = module()
    same(program_of(compose(DATA, TENSOR), {"data": 4, "tensor": 1}, program), program_of(DATA, {"data": 4}, program))
    same(
        program_of(compose(DATA, TENSOR), {"data": 1, "tensor": 4}, program),
        program_of(TENSOR, {"tensor": 4}, program),
    )
    _, whole = program_of(compose(DATA, TENSOR), {"data": 1, "tensor": 1}, program)
    assert whole.comm_bytes_per_device == 0
    assert not Planner(program, ["x"]).annotate(Plan(strategy="fsdp")).shardings
    assert fsdp(program, {"data": 1, "tensor": 4}, BATCH) == megatron(program, {"data": 1, "tensor": 4}, BATCH)


@pytest.mark.parametrize("step", [over_batch, over_weights])
def test_each_way_again_several_ways_is_their_product(step: Any) -> None:
    program = module()
    twice = compose(step("outer"), step("inner"))
    same(program_of(twice, {"outer": 2, "inner": 4}, program), program_of(step("data"), {"data": 8}, program))


# ---- users' own


def test_a_search_crosses_strategies_and_names_them() -> None:
    found = hs.search(
        module(), batch=["x"], machine=machines.h100(4), microbatches=(2,), strategies={"": megatron, "mine": own}
    )
    priced = {str(each.plan) for each in found.table}
    assert {"2/2/1/1", "2/2/1/1 mine", "1/2/2/2 mine"} <= priced
    assert len(found.table) + len(found.refused) + len(found.pruned) == 2 * len(list(plan_space(4, (2,))))


def test_names_of_those_that_are_there() -> None:
    found = hs.search(module(), batch=["x"], machine=machines.h100(2), microbatches=(2,), strategies=list(STRATEGIES))
    assert {each.plan.strategy for each in found.table} == set(STRATEGIES)
    with pytest.raises(
        ScheduleError, match="no strategy 'zero'; there are megatron, fsdp, zero1, zero2, optimum; others"
    ):
        hs.search(module(), batch=["x"], machine=machines.h100(2), strategies=["zero"])


@pytest.mark.parametrize(
    ("specs", "error", "said"),
    [
        ({"wights": P("data")}, ScheduleError, r"'wights'; at strategy bad \(test_strategies.py:\d+\); there are w"),
        ({9: P("data")}, ScheduleError, "no argument 9"),
        ({0: P("model")}, AnnotationError, "model"),
        ({0: P("data", None, "tensor")}, AnnotationError, "3 entries for an array of 2 dims"),
        ({0: P("data", "data")}, AnnotationError, "axis 'data' is used twice"),
        ({0: "data"}, AnnotationError, "data"),
        ({0: None}, AnnotationError, "None is no sharding"),
        ({"weights": P(None, "tensor")}, AnnotationError, r"dim 1 of f32\[16,16\] is not cut into 3 equal pieces"),
    ],
    ids=str,
)
def test_bad_specs_are_refused(specs: Any, error: type[HloShardingError], said: str) -> None:
    planner = Planner(module(), ["x"], strategies={"bad": lambda module, ways, batch: specs})
    with pytest.raises(error, match=said):
        planner.pipeline(Plan(2, 3, strategy="bad"))


def test_a_refused_strategy_is_listed_with_the_reason() -> None:
    found = hs.search(
        module(),
        batch=["x"],
        machine=machines.h100(2),
        strategies={"bad": lambda module, ways, batch: {"wights": P("data")}},
        microbatches=(2,),
    )
    assert not found.table
    assert all("no argument 'wights'" in why for _, why in found.refused)
    with pytest.raises(
        ScheduleError, match=r"no plan could be priced on h100\(2\); 3 of 3 refused: no argument 'wights'"
    ):
        _ = found.best


def test_batch_arguments_without_a_word_are_split_over_data() -> None:
    planner = Planner(module(), ["x"], strategies={"silent": lambda module, ways, batch: {}})
    found = planner.annotate(Plan(4, 2, strategy="silent"))
    assert [found.sharding(p) is not None for p in found.entry.parameters] == [False] * 4 + [True]
    assert found.sharding(found.entry.parameters[4]) == hs.HloSharding.parse(
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"
    )


def test_megatron_is_the_default() -> None:
    planner = Planner(module(), ["x"])
    assert planner.annotate(Plan(2, 2)).shardings == planner.annotate(Plan(2, 2, strategy="megatron")).shardings


def test_sequences_that_do_not_divide_are_refused_with_their_line_and_what_to_do() -> None:
    step = hs.trace(lambda w, x: jnp.sum(jnp.tanh(x @ w)))(jnp.ones((4, 4)), jnp.ones((8, 5, 4)))
    with pytest.raises(ScheduleError, match=r"not cut into 2 equal parts[\s\S]*x, read at [\s\S]*that is divided"):
        Planner(step, ["x"]).annotate(Plan(2, context=2))


def test_of_sequences_that_are_one_longer_inputs_and_labels_are_split() -> None:
    step = hs.trace(lambda w, x: jnp.sum(x[:, :-1] @ w * x[:, 1:]))(jnp.ones((4, 4)), jnp.ones((8, 5, 4)))
    found = Planner(step, ["x"]).annotate(Plan(4, context=2))
    slices = [inst for inst in found.entry.instructions if inst.opcode == "slice"]
    lying = {str(found.sharding(inst)) for inst in slices}
    assert (len(slices), lying) == (2, {"{devices=[2,2,1]<=[4]}"})
    assert str(found.sharding(found.entry.parameters[1])) == "{devices=[2,1,1,2]<=[4] last_tile_dim_replicate}"


def test_state_that_is_not_split_over_data_lies_as_its_weights() -> None:
    """On one data way there is nothing to share: ZeRO is Megatron's plan."""

    def step(up: Any, moment: Any, rows: Any) -> Any:
        moment = 0.9 * moment + jax.grad(lambda up: jnp.sum(jnp.tanh(rows @ up)))(up)
        return up - moment, moment

    planner = Planner(hs.trace(step)(jnp.ones((16, 64)), jnp.ones((16, 64)), jnp.ones((8, 16))), ["rows"])
    peaks = {
        name: planner.schedule(Plan(1, 4, strategy=name), machines.h100(4)).simulate(machines.h100(4)).peak_memory_bytes
        for name in ("", "zero1", "zero2")
    }
    assert peaks["zero1"] == peaks["zero2"] == peaks[""]


def test_state_is_told_apart_behind_more_ops_than_pythons_stack_holds() -> None:
    chain = "\n".join(f"  w{n + 1} = f32[4] negate(w{n})" for n in range(1500))
    module = hs.load(f"HloModule m\nENTRY e {{\n  w0 = f32[4] parameter(0)\n{chain}\n  ROOT w = f32[4] sine(w1500)\n}}")
    assert find_only_updated(module) == {0}


@pytest.mark.parametrize("strategy", ["megatron", "fsdp", "zero1"])
@pytest.mark.parametrize("axes", [("data", "tensor"), ("data", "model"), ("rows", "model")])
def test_constraints_hold_over_axes_that_plans_have_and_are_in_no_strategys_way(
    strategy: str, axes: tuple[str, str], cpu_devices: list[Any]
) -> None:
    mesh = Mesh(np.array(cpu_devices[:8]).reshape(4, 2), axes)

    def step(weights: Any, x: jax.Array) -> jax.Array:
        hidden = jax.lax.with_sharding_constraint(jnp.tanh(x @ weights[0]), NamedSharding(mesh, P(*axes)))
        return jnp.sum(hidden @ weights[1])

    weights, x = arguments()
    planner = Planner(hs.trace(step, mesh=mesh)(weights, x), ["x"])
    found = planner.annotate(Plan(4, 2, strategy=strategy))
    said = [str(sharding) for inst in found.of_opcodes("custom-call") if (sharding := found.sharding(inst)) is not None]
    assert said == (["{devices=[4,2]<=[8]}"] if axes == ("data", "tensor") else [])
    ours = planner.schedule(Plan(4, 2, strategy=strategy)).run_reference(*weights, x)
    np.testing.assert_allclose(ours[0], step(weights, x), rtol=1e-4)
