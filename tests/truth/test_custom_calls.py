"""Custom calls that JAX emits: batch dims as declared, checked against JAX's own run of the pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hlosharding.ir import Instruction, Module
from hlosharding.rules import Nothing, Opaque, Signature, signature_of
from hlosharding.xla_bridge import lowered_to_hlo_proto

Function = Callable[..., Any]


def custom_calls(function: Function, *arguments: Any) -> list[Instruction]:
    """All custom calls in the HLO of a JAX function."""
    import jax

    module = Module.from_proto(lowered_to_hlo_proto(jax.jit(function).lower(*arguments)))
    return [i for i in module.instructions if i.opcode == "custom-call"]


def linalg() -> dict[str, Function]:
    from jax.lax import linalg

    return {
        "qr": linalg.qr,
        "eigh": linalg.eigh,
        "svd": linalg.svd,
        "lu": linalg.lu,
        "hessenberg": linalg.hessenberg,
        "schur": linalg.schur,
    }


def positive(dims: tuple[int, ...]) -> np.ndarray:
    root = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    return root @ root.swapaxes(-1, -2) + 4 * np.eye(dims[-1], dtype=np.float32)


@pytest.mark.parametrize("name", linalg())
def test_lapack_calls_split_along_the_batch(name: str) -> None:
    import jax

    function, matrices = jax.jit(linalg()[name]), positive((4, 3, 3))
    calls = custom_calls(function, matrices)
    assert calls
    for call in calls:
        relation = signature_of(call)
        assert isinstance(relation, Signature)
        assert [(f.name, f.size, f.owes) for f in relation.factors] == [("b0", 4, Nothing())]
        assert {dims[0] for dims in relation.results} == {(0,)}
    whole = jax.tree.leaves(function(matrices))
    parts = [jax.tree.leaves(function(half)) for half in np.split(matrices, 2)]
    for number, leaf in enumerate(whole):
        np.testing.assert_allclose(np.concatenate([p[number] for p in parts]), leaf, rtol=1e-5, atol=1e-5)


def test_a_tridiagonal_solver_has_vectors() -> None:
    import jax

    ones = np.ones((4, 6), np.float32)
    calls = custom_calls(jax.lax.linalg.tridiagonal_solve, ones, 4 * ones, ones, np.ones((4, 6, 2), np.float32))
    assert [f.name for call in calls for f in relation(call).factors] == ["b0"] * len(calls) != []


def relation(inst: Instruction) -> Signature:
    found = signature_of(inst)
    assert isinstance(found, Signature)
    return found


def test_a_matrix_without_batch_is_whole() -> None:
    import jax

    (call,) = custom_calls(lambda a: jax.lax.linalg.eigh(a, symmetrize_input=False), positive((4, 4)))
    assert relation(call).factors == ()


def test_a_host_callback_is_opaque() -> None:
    import jax

    def hosted(x: Any) -> Any:
        return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((4,), np.float32), x)

    (call,) = custom_calls(hosted, np.ones(4, np.float32))
    found = signature_of(call)
    assert isinstance(found, Opaque)
    assert "register_rule" in found.reason


@pytest.mark.parametrize("is_left", [True, False])
def test_right_hand_sides_of_a_triangular_solve_are_independent(is_left: bool) -> None:
    """Split along them, and along the batch, pieces are what JAX's run of the pieces gives."""
    import jax

    def function(matrices: Any, sides: Any) -> Any:
        return jax.lax.linalg.triangular_solve(matrices, sides, left_side=is_left, lower=True)

    free = 2 if is_left else 1
    matrices = np.linalg.cholesky(positive((4, 3, 3)))
    sides = np.random.default_rng(1).normal(size=(4, 3, 6) if is_left else (4, 6, 3)).astype(np.float32)
    [call] = custom_calls(function, matrices, sides)
    relation = signature_of(call)
    assert isinstance(relation, Signature)
    assert [(f.name, f.size, f.owes, f.spreads) for f in relation.factors] == [
        ("b0", 4, Nothing(), True),
        ("n", 6, Nothing(), False),
    ]
    assert relation.pairs(1) == ((0, 0), (free, free))
    pieces = [function(matrices, piece) for piece in np.split(sides, 3, free)]
    np.testing.assert_allclose(np.concatenate(pieces, free), function(matrices, sides), rtol=1e-6)
