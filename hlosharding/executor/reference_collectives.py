"""Collectives as the reference executor runs them: local values of the devices that reach one in, local values out.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hlosharding.errors import ExecutionError
from hlosharding.executor.lax_windows import combiner, is_by_real_part
from hlosharding.ir import Builder, Computation, Instruction, Shape, reduce_arrays
from hlosharding.spmd import Devices, device_groups, permute_pairs
from hlosharding.spmd import collective_arrays as arrays

Values = dict[int, list[np.ndarray]]
"""Per device the leaves of the operands, or of the result."""
Meaning = Callable[[Instruction, Sequence[list[np.ndarray]]], list[list[np.ndarray]]]
"""Of the leaves of all members of a group, in its order."""


def run_collective(inst: Instruction, operands: Values, num_devices: int) -> Values:
    """Run one collective for the devices that reach it; ExecutionError where a group would wait for ever."""
    if inst.opcode == "collective-permute":
        return _permute(inst, operands, num_devices)
    meaning = _MEANINGS[inst.opcode]
    results: Values = {}
    for group in device_groups(inst, Devices(num_devices)):
        here = [d for d in group if d in operands]
        if not here:
            continue
        if len(here) < len(group):
            raise ExecutionError(
                f"devices {here} wait for devices {sorted(set(group) - set(here))}, which never come",
                where=inst.where,
            )
        for device, result in zip(group, meaning(inst, [operands[d] for d in group]), strict=True):
            results[device] = result
    return results


def _permute(inst: Instruction, operands: Values, num_devices: int) -> Values:
    results = {device: [np.zeros_like(v) for v in values] for device, values in operands.items()}
    for source, target in permute_pairs(inst, Devices(num_devices)):
        if (source in operands) != (target in operands):
            raise ExecutionError(f"device {target} waits for device {source}", where=inst.where)
        if target in operands:
            results[target] = operands[source]
    return results


def _reduced(computation: Computation, values: Sequence[np.ndarray]) -> np.ndarray:
    name, dtype = combiner(computation), values[0].dtype
    if name is None or is_by_real_part(computation):
        function = _custom(computation, values[0])
        out = values[0]
        for value in values[1:]:
            out = function(out, value)
        return out
    if dtype == np.bool_:
        return reduce_arrays(name, values)
    # Narrow floats are summed wide and rounded once, which no order of summation does worse than.
    wide = np.float64 if dtype.itemsize < 8 and dtype.kind not in "iuc" else dtype
    return reduce_arrays(name, [np.asarray(v, wide) for v in values]).astype(dtype)


def _custom(computation: Computation, like: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A reducer of two scalars, over two arrays, by one-device XLA."""
    from hlosharding import xla_bridge
    from hlosharding.executor.extract import copy_computation

    builder = Builder("combine")
    reducer = copy_computation(builder, computation)
    main = builder.computation("main")
    shape = Shape.from_dtype(like.dtype, like.shape)
    pair = [main.parameter(0, shape), main.parameter(1, shape)]
    main.root(main.add("map", shape, pair, called=(reducer,), dimensions=tuple(range(shape.rank))))
    proto = builder.finish(main).to_hlo_proto()
    return lambda a, b: xla_bridge.run_proto(proto, [[a], [b]])[0][0]


def _by_leaf(meaning: Callable[[Instruction, Sequence[np.ndarray]], Sequence[np.ndarray]]) -> Meaning:
    """Of a collective that does the same with each leaf of its operands."""

    def all_leaves(inst: Instruction, members: Sequence[list[np.ndarray]]) -> list[list[np.ndarray]]:
        made = [meaning(inst, values) for values in zip(*members, strict=True)]
        return [list(leaves) for leaves in zip(*made, strict=True)]

    return all_leaves


def _all_to_all(inst: Instruction, members: Sequence[list[np.ndarray]]) -> list[list[np.ndarray]]:
    if inst.shape.is_tuple:
        return [list(pieces) for pieces in zip(*members, strict=True)]
    return [[made] for made in arrays.all_to_all([member[0] for member in members], inst.dimensions[0])]


def _ragged_all_to_all(inst: Instruction, members: Sequence[list[np.ndarray]]) -> list[list[np.ndarray]]:
    outputs = [member[1].copy() for member in members]
    for values, _, starts, sizes, targets, _ in members:
        each = len(starts) // len(members)
        for number, (start, size, target) in enumerate(zip(starts, sizes, targets, strict=True)):
            receiver = outputs[number // each]
            receiver[int(target) : int(target) + int(size)] = values[int(start) : int(start) + int(size)]
    return [[output] for output in outputs]


_MEANINGS: dict[str, Meaning] = {
    "all-reduce": _by_leaf(lambda inst, values: arrays.all_reduce(values, partial(_reduced, inst.called[0]))),
    "all-gather": _by_leaf(lambda inst, values: arrays.all_gather(values, inst.dimensions[0])),
    "reduce-scatter": _by_leaf(
        lambda inst, values: arrays.reduce_scatter(values, partial(_reduced, inst.called[0]), inst.dimensions[0])
    ),
    "all-to-all": _all_to_all,
    "collective-broadcast": _by_leaf(lambda _, values: arrays.collective_broadcast(values)),
    "ragged-all-to-all": _ragged_all_to_all,
}
