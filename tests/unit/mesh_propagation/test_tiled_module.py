"""The outcome as a module: which tiles values get, and where copies stand."""

from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import ShardingError
from hlosharding.ir import verify
from hlosharding.mesh_propagation import AxisAnnotation, propagate_axes
from tests.support.mesh_programs import for_users, program
from tests.unit.mesh_propagation.test_annotations import LOOP, LOOPING, THREE

ROWS, COLUMNS = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"


def tiles(module: hs.Module) -> dict[str, str]:
    """The sharding of every instruction that has one."""
    return {i.name: str(module.sharding(i)) for i in module.instructions if module.sharding(i) is not None}


def test_a_user_that_differs_takes_a_copy() -> None:
    notes = [AxisAnnotation("op0", "[[0]]"), for_users("op0", "[[], [0]]", "op2"), for_users("op2", "[]")]
    module = propagate_axes(program(THREE), "2", annotations=notes).to_module()
    verify(module)
    assert tiles(module) == {
        "x": ROWS,
        "op0": ROWS,
        "op0.taken": COLUMNS,
        "op1": ROWS,
        "op2": COLUMNS,
        "op2.taken": "{replicated}",
    }
    assert [o.name for o in module.entry.root.operands] == ["op1", "op2.taken"]


def test_the_module_that_was_read_stays_as_it_was() -> None:
    module = program(THREE)
    text = module.to_hlo_text()
    propagate_axes(module, "2", annotations={"op0": "[[0]]"}).to_module()
    assert module.to_hlo_text() == text


def test_unknown_sizes_make_no_tiles() -> None:
    with pytest.raises(ShardingError, match="a module with tiles needs the size of axis 0"):
        propagate_axes(program(THREE), "?", annotations={"op0": "[[0]]"}).to_module()


def test_a_loop_runs_as_annotated() -> None:
    found = propagate_axes(program(LOOPING, LOOP), "2x2", annotations={"x": "[[0]]", "stepped": "[[1]]"})
    partitioned = hs.partition(found.to_module(), machine=hs.machines.h100(4))
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    expected = -np.tanh(np.tanh(np.tanh(x)))
    np.testing.assert_allclose(partitioned.run_reference(x), expected, rtol=1e-5, atol=1e-6)
