"""A schedule on devices gives what it means: uneven tiles, sends into other layouts, collectives; refusals."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hlosharding.errors import ExecutionError, ScheduleError
from hlosharding.executor import ShardedArray
from hlosharding.ir import Shape
from hlosharding.schedule import UserOp, ValueType, parse_schedule

X = np.arange(24, dtype=np.float32).reshape(8, 3)
SUMMED = UserOp("summed", lambda x: ValueType(Shape.array("f32", (3,)), x.devices), lambda x: x.sum(0), sums=[0])

UNEVEN = """
func @main(%x: f32[8,3] on {0,1} as {devices=[1,2]<=[2]}) {
  %a, %b = split(%x) dim=0 parts=2 axis=micro
  %there = send(%b) to={2,3}
  %back = send(%there) to={0,1}
  %y = concat(%a, %back) dim=0
  return %y
}"""
UNEVEN_ROWS = """
func @main(%x: f32[3,8] on {0,1} as {devices=[2,1]<=[2]}) {
  %a, %b = split(%x) dim=1 parts=2 axis=micro
  %y = concat(%a, %b) dim=1
  return %y
}"""
OTHERWISE = """
func @main(%x: f32[8,3] on {0,1} as {devices=[2,1]<=[2]}) {
  %y = send(%x) to={2,3} sharding={devices=[1,2]<=[2]}
  %z = send(%y) to={4,5,6,7} sharding={devices=[4,1]<=[4]}
  return %z
}"""


@pytest.mark.parametrize(
    ("text", "array"), [(UNEVEN, X), (UNEVEN_ROWS, X.T.copy()), (OTHERWISE, X)], ids=["columns", "rows", "otherwise"]
)
def test_values_come_through(text: str, array: np.ndarray) -> None:
    [found] = parse_schedule(text).compile()(array)
    assert np.array_equal(np.asarray(found), array)


TERMS = """
func @main(%x: f32[8,3] on {0}) {
  %a, %b = split(%x) dim=0 parts=2 axis=data
  %there = send(%b) to={1}
  %p = @summed(%a)
  %q = @summed(%there)
"""


@pytest.mark.parametrize(
    "steps",
    [
        "%s, %t = all-reduce(%p, %q)\n return %s, %t",
        "%s = reduce(%p, %q) to={1}\n return %s",
        "%back = send(%q) to={0}\n %s = add(%p, %back)\n return %s",
    ],
)
def test_terms_become_their_sum(steps: str) -> None:
    for found in parse_schedule(f"{TERMS}{steps}\n}}", {"summed": SUMMED}).compile()(X):
        assert np.array_equal(np.asarray(found), X.sum(0))


def test_results_lie_where_the_schedule_says() -> None:
    [found] = parse_schedule(OTHERWISE).compile()(X)
    assert found.sharding.device_set == set(jax.devices()[4:8])
    [found] = parse_schedule(UNEVEN).compile()(X)
    assert isinstance(found, ShardedArray)
    assert [tile.shape for tile in found.local_arrays] == [(8, 2), (8, 2)]


def test_results_are_parameters_of_the_next_call() -> None:
    compiled = parse_schedule(UNEVEN).compile()
    [once] = compiled(X)
    [twice] = compiled(once)
    assert np.array_equal(np.asarray(twice), X)


def test_the_meshes_of_a_user_change_nothing(mesh_2x4: jax.sharding.Mesh) -> None:
    with jax.set_mesh(mesh_2x4):
        [found] = parse_schedule(UNEVEN).compile()(X)
    assert np.array_equal(np.asarray(found), X)


def test_arrays_of_other_shapes_are_refused_by_name() -> None:
    compiled = parse_schedule(UNEVEN).compile()
    with pytest.raises(ExecutionError, match=r"an array of shape \[8\] for a parameter f32\[8,3\].*%x"):
        compiled(X[:, 0])
    with pytest.raises(ScheduleError, match="2 arrays for the 1 parameters of @main"):
        compiled(X, X)
