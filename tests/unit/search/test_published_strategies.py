"""The strategies that people train decoders with, layers in a scan and listed: each computes what one device does, and
both forms of the model move as many bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hlosharding as hs
from benchmarks.published.planning import planner_of, received_by
from benchmarks.published.transformer import LLAMA_8B
from hlosharding.cost import machines
from hlosharding.schedule import StageProgram
from hlosharding.search import Plan
from hlosharding.search.tensor_parallel import tensor_splits
from tests.support.published_steps import BATCH, SMALL, longer_step_of, step_of, weight_bytes

FORMS = {"scanned": SMALL, "listed": SMALL.listed()}
PLANS = (
    Plan(8, strategy="fsdp"),
    Plan(4, 2, strategy="fsdp"),
    Plan(8, strategy="fsdp", replicas=2),
    Plan(8, strategy="zero2"),
    Plan(8, context=4),
    Plan(8, strategy="fsdp", context=8),
    Plan(4, 2, context=2),
    Plan(4, 1, 2, 2, strategy="fsdp", context=2),
    Plan(4, 2, microbatches=2),
    Plan(4, 1, 2, 2, strategy="fsdp"),
    Plan(2, 2, 2, 2, strategy="zero2"),
    Plan(4, 1, 1, 4, strategy="zero1"),
    Plan(2, 2, 2, 2, strategy="zero1"),
    Plan(4, 2, sequence=True),
    Plan(4, 2, 1, 2, strategy="fsdp", sequence=True),
    Plan(2, 2, 2, 2, context=2, sequence=True),
    Plan(2, 1, 2, 4, "1f1b-x2"),
    Plan(4, 1, 2, 2, "1f1b-x2", strategy="fsdp"),
    Plan(2, 1, 3, 2, strategy="fsdp"),
    Plan(2, 4),
    Plan(2, 4, strategy="fsdp"),
    Plan(1, 4, 2, 2, sequence=True),
)
LONGER = (
    Plan(8, strategy="fsdp", context=8),
    Plan(2, 2, 2, 2, context=2, sequence=True),
    Plan(1, 4, 2, 2, sequence=True),
)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_a_plan_computes_what_one_device_does(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    step_of(FORMS[form]).check(plan, cpu_devices)


@pytest.mark.parametrize("plan", LONGER, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_sequences_may_be_one_longer_than_what_the_model_reads(form: str, plan: Plan, cpu_devices: list[Any]) -> None:
    """Inputs are all tokens but the last, labels all but the first."""
    longer_step_of(FORMS[form]).check(plan, cpu_devices)


@pytest.mark.parametrize("form", FORMS)
def test_inputs_and_labels_that_are_slices_move_what_two_arguments_would(form: str) -> None:
    """Keys and values, as of `test_parts_of_sequences_gather_keys_and_values_and_nothing_else`; not the labels."""
    context, devices = 4, 8
    keys = 4 * BATCH // (devices // context) * SMALL.length * SMALL.kv * SMALL.dim
    expected = SMALL.layers * 6 * keys * (context - 1) / context + 2 * weight_bytes(SMALL) * (devices - 1) / devices
    assert longer_step_of(FORMS[form]).received(Plan(devices, context=context)) == pytest.approx(expected, rel=0.01)


def received(form: str, plan: Plan) -> float:
    return step_of(FORMS[form]).received(plan)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.stages == plan.tensor == 1], ids=str)
def test_scanned_layers_move_what_listed_ones_do(plan: Plan) -> None:
    assert received("scanned", plan) == pytest.approx(received("listed", plan), rel=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_fsdp_gathers_weights_twice_and_reduces_gradients_once(form: str) -> None:
    """ZeRO-3: with all of a layer computed again, its weights are gathered for each pass; no activation moves."""
    most = 3 * 7 / 8 * weight_bytes(SMALL)
    assert 0.85 * most < received(form, Plan(8, strategy="fsdp")) < 1.01 * most


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_sequences_gather_keys_and_values_and_nothing_else(form: str) -> None:
    """Context parallelism: keys and values for both passes that read them, gradients of both reduced to parts; and
    gradients of weights, the loss's neighbours and its mean."""
    context, devices = 4, 8
    keys = 4 * BATCH // (devices // context) * SMALL.length * SMALL.kv * SMALL.dim
    expected = SMALL.layers * 6 * keys * (context - 1) / context + 2 * weight_bytes(SMALL) * (devices - 1) / devices
    assert received(form, Plan(devices, context=context)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_reduced_by_each_microbatch_or_once(form: str) -> None:
    """ZeRO-2 and ZeRO-1: to pieces, a reduce-scatter of all weights, which are gathered when they are updated."""
    share = 3 / 4 * weight_bytes(SMALL)
    every, once = (
        step_of(FORMS[form]).planner.pipeline(Plan(4, 1, 1, 4, strategy=name)) for name in ("zero2", "zero1")
    )
    found = [received_by(steps) for cut in (every, once) for steps in (cut.pieces, cut.closings)]
    assert found == pytest.approx([share, share, 0, 2 * share], rel=0.01, abs=100)


@pytest.mark.parametrize("plan", [Plan(4, 2, 1, 2), Plan(2, 2, 2, 2), Plan(8, 1, 1, 2)], ids=str)
def test_behind_the_last_microbatch_gradients_are_summed_and_nothing_else_moves(plan: Plan) -> None:
    """An all-reduce of them; not to pieces, of which weights and both moments would be gathered."""
    config = replace(SMALL, width=512, hidden=2048, length=128, kv_heads=0, vocabulary=512)
    closings = step_of(config).planner.pipeline(plan, machines.a100(8)).closings
    share = 2 * (plan.data - 1) / plan.data / plan.tensor
    assert received_by(closings) == pytest.approx(share * weight_bytes(config), rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_no_microbatch_moves_the_gradient_of_the_embedding(form: str) -> None:
    """Of tokens that tensor ways share each adds up some, until the last microbatch."""
    config = replace(LLAMA_8B, layers=2, scanned=form == "scanned")
    pieces = planner_of(config, 512).pipeline(Plan(16, 2, 2, 16), machines.h100(64)).pieces
    programs = [piece.op.program.module for piece in pieces if isinstance(piece.op, StageProgram)]
    moved = {dim for program in programs for one in hs.collectives(program) for dim in one.shape.dims}
    assert config.vocabulary not in moved


@pytest.mark.parametrize("form", FORMS)
def test_sequences_are_split_between_products(form: str) -> None:
    """Sequence parallelism, layers computed again: what goes into two products by columns is gathered, and gradients
    into two by rows; what comes out of these is scattered (Korthikanti et al. 2022, section 4.2.2)."""
    config, plan = FORMS[form], Plan(1, 2, sequence=True)
    two_layers = step_of(config).received(plan) - step_of(replace(config, layers=2)).received(plan)
    activation = 4 * BATCH * config.length * config.width
    assert two_layers == pytest.approx(2 * (6 + 5) * activation / 2, rel=0.01)


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_split_by_heads(form: str) -> None:
    module = step_of(FORMS[form]).planner.module
    names = {p.parameter_number: p.op_name for p in module.entry.parameters}
    splits = tensor_splits(module, 2, batch=step_of(FORMS[form]).planner.numbers)
    first = {names[n].rsplit("'", 2)[1]: dim for n, dim in splits.items() if names[n].startswith("weights['layers']")}
    dims = dict.fromkeys("qkv", 1) | {"o": 0, "up": 1, "gate": 1, "down": 0}
    assert first == {name: dim + (form == "scanned") for name, dim in dims.items()}


@pytest.mark.parametrize("scaling", ["fixed", "dynamic"])
def test_weights_that_become_float8_are_split_as_others_are(scaling: str) -> None:
    plain, scaled = (step_of(each).planner for each in (SMALL, replace(SMALL, float8=scaling)))
    found = [tensor_splits(each.module, 2, batch=each.numbers) for each in (plain, scaled)]
    assert found[0] == found[1]


def test_heads_that_do_not_divide_leave_their_weights_whole() -> None:
    """Rather than to split the features of a head, over which attention sums."""
    planner = step_of(replace(FORMS["listed"], heads=12, kv_heads=3)).planner
    names = {p.parameter_number: p.op_name for p in planner.module.entry.parameters}
    splits = {names[n] for n in tensor_splits(planner.module, 4, batch=planner.numbers)}
    assert "weights['layers'][0]['q']" in splits
    assert splits.isdisjoint({"weights['layers'][0]['k']", "weights['layers'][0]['v']"})


@pytest.mark.parametrize("form", FORMS)
def test_fewer_heads_of_keys_than_ways_lie_where_their_queries_are(form: str) -> None:
    """Two heads of keys on four devices, each on two of them, as Megatron repeats them."""
    step = step_of(FORMS[form])
    parts = step.planner.pipeline(Plan(1, 4)).inputs
    ways = {kind.sharding.num_tiles_along(kind.shape.rank - 2) for name, kind in parts.items() if "k__" in name}
    assert ways == {SMALL.kv}


@pytest.mark.parametrize("form", FORMS)
def test_heads_of_keys_that_are_repeated_move_gradients_between_their_copies(form: str) -> None:
    """Four sums over all four devices, one of them of a forward pass that runs again; between the two copies of a head
    the gradients of keys and values, and what queries give to that of their input, which then is summed over heads."""
    config, plan = FORMS[form], Plan(1, 4)
    two_layers = step_of(config).received(plan) - step_of(replace(config, layers=2)).received(plan)
    activation, head = (4 * BATCH * config.length * size for size in (config.width, config.dim))
    assert two_layers == pytest.approx(2 * ((4 * 2 * 3 / 4 + 2) * activation + 2 * head), rel=0.01)
