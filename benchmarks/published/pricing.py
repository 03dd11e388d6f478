"""What the simulator says of measured runs, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context

from benchmarks.published.planning import planner_of
from benchmarks.published.runs import Run
from benchmarks.published.transformer import model_flops
from hlosharding.cost import Machine, machine_named
from hlosharding.cost import utilization as share_of_peak
from hlosharding.errors import HloShardingError
from hlosharding.partitioner import PartitionOptions


@dataclass(frozen=True)
class Prediction:
    """Of one run; seconds are those of the devices that compute longest."""

    seconds: float
    gibibytes: float
    computing_s: float
    communicating_s: float
    """Inside stages, where no computing hides it."""
    launching_s: float
    """For the host, to launch kernels."""
    idle_s: float
    """For other stages."""


AS_THEY_RAN = PartitionOptions(only_propagated=True)
"""Megatron, PyTorch's FSDP and XLA move what the plan says, where ours may move less."""
Outcome = Prediction | str
"""What a step takes, or why it cannot be told."""


def predicted(run: Run) -> Outcome:
    """Of one run."""
    machine = machine_of_run(run)
    try:
        found = planner_of(run.config, run.batch).schedule(run.plan, machine, AS_THEY_RAN).simulate(machine)
    except HloShardingError as error:
        return str(error)
    use = max(found.usage, key=lambda each: each.busy_s)
    copying = machine.traffic_seconds(run.beside.copied)
    computing = use.busy_s - use.exposed_s - use.waiting_s + copying
    memory = (found.peak_memory_bytes + run.beside.held) / 2**30
    return Prediction(found.time_s + copying, memory, computing, use.exposed_s, use.waiting_s, use.idle_s)


def machine_of_run(run: Run) -> Machine:
    """The preset that it ran on, with what is known of the framework and the cluster."""
    preset = machine_named(run.machine, run.plan.num_devices)
    if run.attention is not None:
        forward, backward = run.attention
        forward /= run.products  # both are shares of the preset's products
        preset = replace(preset, attention_efficiency=forward, attention_backward=backward)
    dispatch, products = run.dispatch or preset.dispatch, preset.compute_efficiency * run.products
    between = replace(preset.between, bandwidth=preset.between.bandwidth * run.network)
    return replace(preset, compute_efficiency=products, dispatch=dispatch, runtime=run.runtime, between=between)


def utilization(run: Run, seconds: float) -> float:
    """Model FLOPs of a step over what the devices could do in that time in the type that flows (MFU)."""
    dtype = "f16" if run.config.compute.__name__ == "float16" else "bf16"
    return share_of_peak({dtype: model_flops(run.config, run.batch)}, seconds, machine_of_run(run))


def all_predicted(runs: Sequence[Run], workers: int, progress: Callable[[int, int], None]) -> list[Outcome]:
    """Of each run, in their order.  Those of one model and batch are priced by one process, which traces it once."""
    groups: dict[object, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault((run.config, run.batch), []).append(number)
    found: dict[int, Outcome] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(_of_group, [runs[n] for n in numbers]): numbers for numbers in groups.values()}
        for answer in as_completed(asked):
            found |= zip(asked[answer], answer.result(), strict=True)
            progress(len(found), len(runs))
    return [found[number] for number in range(len(runs))]


def _of_group(runs: Sequence[Run]) -> list[Outcome]:
    return list(map(predicted, runs))
