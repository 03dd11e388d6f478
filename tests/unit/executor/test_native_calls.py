"""A program from a file runs LAPACK's kernels as JAX calls them, and no other native code."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.buffer_callback import buffer_callback
from jax.lax import linalg

import hlosharding as hs
from hlosharding.errors import ExecutionError
from hlosharding.executor.native_calls import has_its_shapes, is_known
from hlosharding.ir import Shape
from hlosharding.ir.custom_call_targets import EXPANDED

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cholesky": linalg.cholesky,
    "lu": linalg.lu,
    "qr": lambda x: linalg.qr(x, full_matrices=False),
    "pivoted qr": lambda x: linalg.qr(x, pivoting=True, full_matrices=False),
    "thin svd": lambda x: linalg.svd(x, full_matrices=False),
    "full svd": linalg.svd,
    "singular values": lambda x: linalg.svd(x, compute_uv=False),
    "svd by QR": lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.QR),
    "eigh": linalg.eigh,
    "eig": linalg.eig,
    "schur": linalg.schur,
    "hessenberg": linalg.hessenberg,
    "tridiagonal": linalg.tridiagonal,
    "triangular solve": lambda x: linalg.triangular_solve(x, x[..., :3], left_side=True),
    "triangular solve from the right": lambda x: linalg.triangular_solve(x, x[..., :3, :]),
    "tridiagonal solve": lambda x: linalg.tridiagonal_solve(x[..., 0], x[..., 1], x[..., 2], x),
}
OBLONG = {"lu", "qr", "pivoted qr", "thin svd", "full svd", "singular values", "svd by QR"}


def kernels_of(module: hs.Module) -> list[Any]:
    return [i for i in module.instructions if i.opcode == "custom-call" and i.custom_call_target != "Sharding"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_are_those_that_jax_gives_and_no_others(name: str) -> None:
    sizes = [(4, 4), (2, 5, 5), *([(5, 3), (2, 3, 5)] if name in OBLONG else [])]
    for dims in sizes:
        for dtype in (jnp.float32, jnp.complex64):
            if name == "tridiagonal solve" and dtype == jnp.complex64:
                continue
            lowered = jax.jit(FUNCTIONS[name]).lower(jax.ShapeDtypeStruct(dims, dtype))
            found = kernels_of(hs.load(lowered.as_text()))
            assert found, name
            for call in found:
                assert is_known(call), call.custom_call_target
                assert has_its_shapes(call), call.proto
                for wrong in wrong_shapes(call.shape):
                    right, call.shape = call.shape, wrong
                    assert not has_its_shapes(call), wrong
                    call.shape = right


def wrong_shapes(shape: Shape) -> list[Shape]:
    """One dim of one result is smaller, or one result is missing."""
    leaves = list(shape.leaves)
    smaller = [
        leaf.with_dims((*leaf.dims[:d], leaf.dims[d] - 1, *leaf.dims[d + 1 :]))
        for leaf in leaves
        for d in range(len(leaf.dims))
        if leaf.dims[d]
    ]
    at = [n for n, leaf in enumerate(leaves) for size in leaf.dims if size]
    if not shape.is_tuple:
        return smaller
    changed = [Shape.tuple((*leaves[:n], leaf, *leaves[n + 1 :])) for n, leaf in zip(at, smaller, strict=True)]
    return [*changed, Shape.tuple(tuple(leaves[:-1]))]


def test_a_loaded_factorisation_runs_and_one_that_lies_does_not() -> None:
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    text = jax.jit(lambda x: linalg.lu(x)[0]).lower(x).as_text(dialect="hlo")
    program = hs.partition(hs.load(text), num_partitions=1)
    np.testing.assert_allclose(program.run(x), linalg.lu(x)[0], rtol=1e-5)
    lying = hs.partition(hs.load(re.sub(r"s32\[8\]", "s32[1]", text)), num_partitions=1)
    for run in (lying.run, lying.run_reference):
        with pytest.raises(ExecutionError, match=r"lapack_sgetrf_ffi of f32\[8,8\] does not make .* write elsewhere"):
            run(x)


@pytest.mark.parametrize("name", ["qr", "eigh"])
def test_what_xla_writes_as_loops_of_its_own_runs_split_over_its_batch(name: str) -> None:
    """As JAX lowers it for TPUs, and TensorFlow for all."""
    x = np.random.default_rng(0).normal(size=(8, 6, 6)).astype(np.float32)
    x = x + x.transpose(0, 2, 1)
    text = jax.jit(FUNCTIONS[name]).trace(x).lower(lowering_platforms=("tpu",)).as_text()
    module = hs.load(text)
    calls = kernels_of(module)
    assert {call.custom_call_target for call in calls} <= {*EXPANDED}
    assert not any(has_its_shapes(call) for call in calls for call.shape in wrong_shapes(call.shape))
    split = hs.annotate(hs.load(text), {module.entry.parameters[0].name: "{devices=[8,1,1]<=[8]}"})
    local = hs.partition(hs.propagate(split))
    assert {leaf.dims[0] for call in kernels_of(local.module) for leaf in call.shape.leaves} == {1}
    first, second = (np.asarray(a, np.float64) for a in local.run(x))
    made = first @ second if name == "qr" else first * second[:, None] @ first.transpose(0, 2, 1)
    np.testing.assert_allclose(made, x, atol=1e-5)


TOP_K = """HloModule m
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}
ENTRY e {
  x = f32[8] parameter(0)
  ROOT y = (f32[COUNT], s32[COUNT]) custom-call(x), custom_call_target="TopK", called_computations={larger}
}
"""


def test_no_more_is_taken_from_the_top_than_there_is() -> None:
    x = np.arange(8, dtype=np.float32)
    values, places = hs.partition(hs.load(TOP_K.replace("COUNT", "3")), num_partitions=1).run(x)
    assert (list(values), list(places)) == ([7, 6, 5], [7, 6, 5])
    with pytest.raises(ExecutionError, match=r"TopK of f32\[8\] does not make"):
        hs.partition(hs.load(TOP_K.replace("COUNT", "16")), num_partitions=1).run(x)


def test_sorting_by_a_function_needs_the_function() -> None:
    [call] = kernels_of(hs.load(jax.jit(linalg.schur).lower(jax.ShapeDtypeStruct((4, 4), jnp.float32)).as_text()))
    assert has_its_shapes(call)
    call.proto.backend_config = call.proto.backend_config.replace(b"sort = 78", b"sort = 83")
    assert not has_its_shapes(call)


@pytest.mark.parametrize(
    "said",
    [
        '{about = "mode = 83 : ui8", mode = 65 : ui8}',
        "{a = {mode = 83 : ui8}, mode = 65 : ui8}",
        "{mode=65 : ui8 // mode = 83\n}",
        '{"mode" = 65 : ui8, about = mode = 83}',
    ],
)
def test_what_a_dictionary_says_elsewhere_is_not_what_the_kernel_reads(said: str) -> None:
    thin = jax.jit(FUNCTIONS["thin svd"]).lower(jax.ShapeDtypeStruct((5, 3), jnp.float32))
    [call] = kernels_of(hs.load(thin.as_text()))
    assert has_its_shapes(call)
    call.proto.backend_config = said.encode()
    assert not has_its_shapes(call)


def test_a_buffer_callback_runs_where_it_was_traced_alone() -> None:
    def tripled(x: Any) -> Any:
        def fill(_: Any, made: Any, taken: Any) -> None:
            np.asarray(made)[...] = 3 * np.asarray(taken)

        return buffer_callback(fill, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    x = np.arange(8, dtype=np.float32)
    step = hs.jit(tripled, mesh=jax.make_mesh((2,), ("a",), devices=jax.devices()[:2]))
    np.testing.assert_array_equal(step(x), 3 * x)
    np.testing.assert_array_equal(step.trace(x).propagate().partition().partitioned.run_reference(x), 3 * x)
    loaded = hs.partition(hs.load(jax.jit(tripled).lower(x).as_text()), num_partitions=2)
    for run in (loaded.run, loaded.run_reference):
        with pytest.raises(ExecutionError, match="calls back into Python, and the module lacks the function"):
            run(x)


def test_a_solution_has_the_type_of_its_system() -> None:
    def solved(diagonals: Any, b: Any) -> Any:
        return linalg.tridiagonal_solve(diagonals, diagonals, diagonals, b, perturb_singular=True)

    shapes = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in ((5,), (5, 2))]
    [call] = kernels_of(hs.load(jax.jit(solved).lower(*shapes).as_text()))
    assert has_its_shapes(call)
    call.shape = Shape.array("f16", (5, 2))
    assert not has_its_shapes(call)
