"""Numbers that differ by device (where its tile begins), as arithmetic on its place along the mesh's axes.

Floor: executor.  A module reads them from tables by the partition id; `spmd` says what they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlosharding.executor.axes import Axes, Parts
from hlosharding.executor.flow import OF_NUMBERS, Inline
from hlosharding.ir import Instruction
from hlosharding.spmd import Devices, integers_of

_MOST_TERMS = 2
"""More of them, and a table reads better.  With one a program is longer, with four none differs."""


class DeviceNumbers:
    """The scalars of a program that every device knows by its id alone, each written where it is used."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._values: dict[Instruction, np.ndarray] = {}

    def constant(self, inst: Instruction) -> Inline | None:
        """The expression of a number; None for other values, and for numbers that are no sum over axes.

        Operands come before their users.
        """
        values = self._values_of(inst)
        if values is None:
            return None
        self._values[inst] = values
        # `lax.axis_index` is of this type.
        if inst.shape.element_type != "s32" or inst.shape.rank:
            return None
        text = self._text(values)
        return Inline(text, "", is_atom=not {"*", "+"} & set(text)) if text else None

    def _values_of(self, inst: Instruction) -> np.ndarray | None:
        devices = Devices(self._axes.num_devices)
        if inst.opcode == "partition-id":
            return integers_of(inst, (), devices)
        if inst.opcode not in OF_NUMBERS or not any(o in self._values for o in inst.operands):
            return None
        constants = {o: integers_of(o, (), devices) for o in inst.operands if o.opcode == "constant"}
        return integers_of(inst, [self._values.get(o, constants.get(o)) for o in inst.operands], devices)

    def _text(self, values: np.ndarray) -> str | None:
        # Tables go by device ids, `lax.axis_index` by places of the mesh.
        grid = values[list(self._axes.devices)].reshape(self._axes.sizes)
        base, steps = int(grid.flat[0]), _steps(grid)
        terms = list(_terms(steps, self._axes.sizes))
        is_sum = (grid == base + np.tensordot(steps, np.indices(grid.shape), 1)).all()
        if not is_sum or not 0 < len(terms) <= _MOST_TERMS:
            return None
        factors = [f" * {step}" if step != 1 else "" for _, step in terms]
        texts = [f"lax.axis_index({self._axes.text(parts)}){by}" for (parts, _), by in zip(terms, factors, strict=True)]
        return " + ".join([*texts, *([str(base)] if base else [])])


def _steps(grid: np.ndarray) -> list[int]:
    """By how much a number grows from a place to the next along each axis."""
    return [int(grid.take(1, axis=a).flat[0] - grid.flat[0]) if n > 1 else 0 for a, n in enumerate(grid.shape)]


def _terms(steps: list[int], sizes: tuple[int, ...]) -> Iterator[tuple[Parts, int]]:
    """Axes, and what the place along them is multiplied with; neighbours that count through are one term."""
    parts: Parts = ()
    for axis, step in enumerate(steps):
        if parts and steps[parts[-1]] != step * sizes[axis]:
            yield parts, steps[parts[-1]]
            parts = ()
        if step:
            parts = (*parts, axis)
    if parts:
        yield parts, steps[parts[-1]]
