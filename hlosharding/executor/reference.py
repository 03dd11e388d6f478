"""The reference executor: a partitioned module device by device, with no mesh and any number of devices.

Floor: executor.  Stretches without communication are compiled once for one CPU device and run for each device in turn;
collectives, partition ids and control flow around them are interpreted in numpy.  Slow, and the judge of the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import ExecutionError
from hlosharding.executor.boundary import BoundaryArray, assemble, boundary_arrays, split, typed_input
from hlosharding.executor.callbacks import call_python, is_callback
from hlosharding.executor.cpu_int2 import refuse_cpu_int2
from hlosharding.executor.custom_calls import attend, call_kernel, is_attention, is_users_kernel, prepare_custom_calls
from hlosharding.executor.elided import refuse_elided
from hlosharding.executor.emit import REFUSED
from hlosharding.executor.extract import extract
from hlosharding.executor.flow import CodeLine, Flow, Tree, Var, flow_of, leaves
from hlosharding.executor.reference_collectives import Values, run_collective
from hlosharding.ir import COLLECTIVES, DEVICE_NUMBERS, Computation, Instruction, Module, while_parts
from hlosharding.once import remembered

# A fusion says how to compile what its body says, which XLA takes from its own passes alone (it ends the process).
_INTERPRETED = COLLECTIVES | DEVICE_NUMBERS | {"fusion"}
Env = dict[Var, dict[int, np.ndarray]]


@deep_stack
def run_reference(
    module: Module,
    global_arrays: Sequence[Any],
    num_devices: int | None = None,
    *,
    inputs: Sequence[BoundaryArray] | None = None,
    outputs: Sequence[BoundaryArray] | None = None,
) -> list[np.ndarray]:
    """Global arrays in (one per leaf of the entry's parameters), global numpy arrays out.

    `num_devices` defaults to the module's; `inputs` and `outputs` as for `ShardMapProgram`.
    """
    count = num_devices or max(1, module.num_partitions)
    found_inputs, found_outputs = boundary_arrays(module, inputs, outputs)
    if len(global_arrays) != len(found_inputs):
        raise ExecutionError(f"{len(global_arrays)} arrays for the {len(found_inputs)} inputs of {module.name}")
    local = []
    for number, (array, layout) in enumerate(zip(global_arrays, found_inputs, strict=True)):
        value = np.asarray(typed_input(array, layout.shape))
        if value.shape != layout.shape.dims:
            raise ExecutionError(f"input {number} has shape {list(value.shape)}, the program takes {layout.shape}")
        local.append(split(value, layout.sharding, count))
    arguments = {device: [tiles[device] for tiles in local] for device in range(count)}
    results = run_local(module, arguments)
    return [
        assemble([results[d][i] for d in range(count)], layout.sharding, layout.shape.dims)
        for i, layout in enumerate(found_outputs)
    ]


def run_local(module: Module, arguments: Values, num_devices: int | None = None) -> Values:
    """Local arrays in and out: per device the leaves of the entry's parameters, and of its root.

    `num_devices`: of the program, where `arguments` are those of some of its devices, which no collective ties to
    the others.
    """
    prepare_custom_calls(module)
    refuse_elided(module)
    refuse_cpu_int2(module)
    return _ReferenceRun(num_devices or len(arguments)).computation(module.entry, arguments)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Local lines that run as one compiled module."""

    program: Any
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]


class _ReferenceRun:
    def __init__(self, num_devices: int) -> None:
        self._count = num_devices

    def computation(self, computation: Computation, arguments: Values) -> Values:
        """Run for the devices in `arguments`: leaves of the parameters in, leaves of the root out."""
        if not arguments:
            return {}
        flow, stages = self._plan(computation)
        env: Env = {}
        parameters = [leaf for tree in flow.parameters for leaf in leaves(tree)]
        for number, var in enumerate(parameters):
            env[_var(var)] = {device: values[number] for device, values in arguments.items()}
        devices = list(arguments)
        for stage in stages:
            if isinstance(stage, _Stage):
                made, run = stage.outputs, stage.program.run
                found = {d: [r[0] for r in run([[env[var][d]] for var in stage.inputs])] for d in devices}
            else:
                made = stage.defines
                operands = {d: [_leaf_values(tree, env, d) for tree in stage.operands] for d in devices}
                found = self._special(stage.inst, operands)
            for number, var in enumerate(made):
                env[var] = {d: np.asarray(found[d][number]) for d in devices}
        return {d: _leaf_values(flow.result, env, d) for d in devices}

    # ---- planning

    @remembered
    def _plan(self, computation: Computation) -> tuple[Flow, list[_Stage | CodeLine]]:
        flow = flow_of(computation, inline=False)
        return flow, list(self._stages(flow))

    def _stages(self, flow: Flow) -> Iterator[_Stage | CodeLine]:
        levels = self._levels(flow.lines)
        # A number above all levels: results are kept.
        last_use = dict.fromkeys(map(_var, leaves(flow.result)), len(flow.lines) * 2 + 2)
        for line in flow.lines:
            for leaf in line.uses:
                last_use[_var(leaf)] = max(last_use.get(_var(leaf), 0), levels[line.inst])
        for level, lines in groupby(sorted(flow.lines, key=lambda line: levels[line.inst]), lambda x: levels[x.inst]):
            if level % 2:
                yield from lines
            else:
                yield from _compiled(list(lines), last_use, level)

    def _levels(self, lines: Sequence[CodeLine]) -> dict[Instruction, int]:
        """Twice as many as interpreted ops come before each line, one after the other; one more of such an op."""
        levels: dict[Instruction, int] = {}
        for line in lines:
            before = max((levels.get(_var(leaf).inst, 0) for leaf in line.uses), default=0)
            levels[line.inst] = before + before % 2 + self._is_special(line.inst)
        return levels

    def _is_special(self, inst: Instruction) -> bool:
        if inst.opcode in _INTERPRETED or is_callback(inst) or is_users_kernel(inst) or is_attention(inst):
            return True
        return any(self._has_special(c) for c in inst.called)

    @remembered
    def _has_special(self, computation: Computation) -> bool:
        return any(map(self._is_special, computation.instructions))

    # ---- interpreted ops

    def _special(self, inst: Instruction, operands: dict[int, list[list[np.ndarray]]]) -> Values:
        if inst.opcode == "partition-id":
            return {d: [np.asarray(d, np.uint32)] for d in operands}
        if inst.opcode == "replica-id":
            return {d: [np.asarray(0, np.uint32)] for d in operands}
        if inst.opcode == "while":
            return self._while(inst, {d: values[0] for d, values in operands.items()})
        if inst.opcode == "conditional":
            return self._conditional(inst, operands)
        flat = {d: [leaf for values in parts for leaf in values] for d, parts in operands.items()}
        if inst.opcode in ("call", "fusion"):
            return self.computation(inst.called[0], flat)
        if is_callback(inst):
            return {d: call_python(inst, values) for d, values in flat.items()}
        if is_users_kernel(inst):
            return {d: call_kernel(inst, values) for d, values in flat.items()}
        if is_attention(inst):
            return {d: attend(inst, values) for d, values in flat.items()}
        if inst.opcode in COLLECTIVES:
            return run_collective(inst, flat, self._count)
        reason = REFUSED.get(inst.opcode) or "it communicates inside a computation that runs per element"
        raise ExecutionError(f"{inst.opcode} cannot run: {reason}", where=inst.where)

    def _while(self, inst: Instruction, state: Values) -> Values:
        body, condition = while_parts(inst)
        results = dict(state)
        active = dict(state)
        # Devices leave the loop one by one; where a collective in it waits for one that has left, it says so.
        while active:
            goes_on = self.computation(condition, active)
            active = {d: values for d, values in active.items() if bool(goes_on[d][0])}
            active = self.computation(body, active)
            results.update(active)
        return results

    def _conditional(self, inst: Instruction, operands: dict[int, list[list[np.ndarray]]]) -> Values:
        results: Values = {}
        for number, branch in enumerate(inst.called):
            takers = {d: v[1 + number] for d, v in operands.items() if self._branch(inst, v[0][0]) == number}
            results.update(self.computation(branch, takers))
        return results

    def _branch(self, inst: Instruction, index: np.ndarray) -> int:
        if inst.operands[0].shape.element_type == "pred":
            return 0 if bool(index) else 1
        last = len(inst.called) - 1
        return int(index) if 0 <= int(index) <= last else last


def _compiled(lines: Sequence[CodeLine], last_use: Mapping[Var, int], level: int) -> Iterator[_Stage]:
    """Lines as one module, where any of what they make is used at a later level."""
    made = {v for line in lines for v in line.defines}
    inputs = tuple(dict.fromkeys(_var(u) for line in lines for u in line.uses if u not in made))
    kept = tuple(v for line in lines for v in line.defines if last_use.get(v, -1) > level and v.shape.is_array)
    if kept:
        yield _Stage(xla_bridge.compile_proto(extract(lines, inputs, kept).to_hlo_proto()), inputs, kept)


def _var(leaf: object) -> Var:
    assert isinstance(leaf, Var)
    return leaf


def _leaf_values(tree: Tree, env: Env, device: int) -> list[np.ndarray]:
    return [env[_var(leaf)][device] for leaf in leaves(tree)]
