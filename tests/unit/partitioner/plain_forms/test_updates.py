"""Updates at known places: right to the last element, in and out of bounds, and no more moves than must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner import PartitionOptions, in_plain_forms
from tests.support.program_check import check
from tests.support.random_programs.programs import RandomProgram
from tests.support.split_programs import module_of, right

X = np.random.default_rng(0).normal(size=(24, 20)).astype(np.float32)


def run(function: Callable[..., Any], spec: P, *arrays: np.ndarray) -> hs.Partitioned:
    """The partitioned program, held against one device's run, tile by tile and as users run it."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    module = hs.trace(function, mesh=mesh, in_shardings=(spec,) * len(arrays), out_shardings=spec)(*arrays)
    check(RandomProgram(module, arrays), how="run")
    return check(RandomProgram(module, arrays)).partitioned


def opcodes(local: hs.Partitioned) -> set[str]:
    return {i.opcode for i in local.module.instructions}


UPDATES: dict[str, Callable[[Any], Any]] = {
    "add": lambda u: u.at[1:-1].add(u[2:] - u[:-2]),
    "set": lambda u: u.at[3:-2, 1:-1].set(u[5:, 2:] * 2),
    "multiply": lambda u: u.at[1:-1].multiply(u[:-2]),
    "min": lambda u: u.at[:-1].min(u[1:]),
    "max": lambda u: u.at[2:].max(u[:-2]),
    "apply": lambda u: u.at[1:-1].apply(jnp.sin),
    "divide": lambda u: u.at[1:].divide(3.0),
    "power": lambda u: u.at[:, 2:].power(2.0),
    "even rows": lambda u: u.at[::2].add(u[1::2]),
    "odd columns": lambda u: u.at[:, 1::2].set(u[:, ::2]),
    "backwards": lambda u: u.at[::-1].add(u),
    "every third backwards": lambda u: u.at[20:2:-3].set(u[:6]),
    "grid": lambda u: u.at[1::4, 2::3].max(u[:6, :6]),
    "row": lambda u: u.at[-1].set(u[0]),
    "column": lambda u: u.at[:, 0].set(u[:, 1]),
    "rows by arange, some of them outside": lambda u: u.at[jnp.arange(8) + 19].add(u[:8], mode="drop"),
    "rows by arange, all of them outside": lambda u: u.at[jnp.arange(8) + 24].add(u[:8], mode="drop"),
    "a window by arange": lambda u: u.at[jnp.arange(20) + 2].set(u[:20]),
    "a window by arange, backwards": lambda u: u.at[21 - jnp.arange(20)].multiply(u[:20]),
    "rows by arange": lambda u: u.at[jnp.arange(8) * 3].add(u[:8]),
    "a gradient": jax.grad(lambda v: (v.at[1:-1].add(v[2:] * v[:-2]) ** 2).sum()),
}


@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P(None, "x")])
@pytest.mark.parametrize("name", UPDATES)
def test_an_update_is_what_one_device_makes(name: str, spec: P) -> None:
    run(UPDATES[name], spec, X)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.complex64, np.bool_])
@pytest.mark.parametrize("how", ["add", "multiply", "max", "set"])
def test_in_every_type(dtype: type, how: str) -> None:
    if dtype is np.bool_ and how in ("add", "multiply"):
        how = "max"
    x = (X * 3).astype(dtype)
    run(lambda u: getattr(u.at[1:-1], how)(u[2:]), P("x", "y"), x)


def test_a_sum_with_nothing_keeps_the_sign_of_zero() -> None:
    x = np.full((16, 8), -0.0, np.float32)
    local = run(lambda u: u.at[1:-1].add(u[2:]), P("x", "y"), x)
    assert np.signbit(np.asarray(local.run(x))).all()


@pytest.mark.parametrize(("shape", "rows"), [((16, 8), 1), ((16, 8), 3), ((23, 9), 2)])
def test_only_strips_move(shape: tuple[int, int], rows: int) -> None:
    """The update is shifted: each device but the last gets `rows` rows of its neighbour."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
    u = jax.ShapeDtypeStruct(shape, np.float32)
    for how in ("add", "set"):
        trace = hs.trace(
            lambda u, h=how: getattr(u.at[:-rows], h)(u[rows:]), mesh=mesh, in_shardings=(P("x"),), out_shardings=P("x")
        )
        local = hs.partition(trace(u), options=PartitionOptions(objective="bytes"))
        assert 0 < local.comm_bytes_per_device <= 4 * rows * shape[1]
        assert "scatter" not in opcodes(local)


SCATTER = """
      x = f32[16] parameter(0), sharding={{devices=[8]<=[8]}}
      i = {kind}[1] constant({{{start}}})
      u = f32[{size}] parameter(1)
      ROOT s = f32[16] scatter(x, i, u), update_window_dims={{0}}, inserted_window_dims={{}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=0, to_apply={how}_f32, sharding={{devices=[8]<=[8]}}
"""  # noqa: E501


@pytest.mark.parametrize("how", ["add", "assign"])
@pytest.mark.parametrize(
    ("kind", "start", "size"),
    [("s32", 3, 6), ("s32", 10, 6), ("s32", 11, 6), ("s32", -1, 6), ("u8", 255, 4), ("s32", 0, 16), ("s32", 1, 16)],
)
def test_a_window_that_does_not_fit_is_dropped(how: str, kind: str, start: int, size: int) -> None:
    local = right(SCATTER.format(kind=kind, start=start, size=size, how=how))
    assert size == 16 or "scatter" not in opcodes(local)  # a whole dim is written tile by tile, or not at all


STAYING = """
      x = f32[16,8] parameter(0), sharding={{devices=[8,1]<=[8]}}
      u = f32[{count},8] parameter(1)
      i = s32[{count},1] {indices}
      ROOT s = f32[16,8] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add_f32, sharding={{devices=[8,1]<=[8]}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("count", "indices"),
    [
        (2, "constant({{3},{3}})"),
        (1, "parameter(2)"),
        (4, "constant({{-3},{2},{7},{12}})"),  # in even steps, but one of them is out of bounds
        (4, "constant({{13},{14},{15},{16}})"),
    ],
)
def test_other_scatters_stay(count: int, indices: str) -> None:
    given = [np.ones((16, 8), np.float32), np.ones((count, 8), np.float32), np.array([[5]], np.int32)]
    local = right(STAYING.format(count=count, indices=indices), *given[: 3 if "parameter" in indices else 2])
    assert "scatter" in opcodes(local)


def test_where_nothing_is_split_nothing_changes() -> None:
    text = SCATTER.format(kind="s32", start=3, size=6, how="add").replace("devices=[8]<=[8]", "replicated")
    module = module_of(text)
    assert in_plain_forms(module) is module
