"""Rules of whole functions: what each dim is, by reasoning on the mathematics."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.rules import Nothing, Signature, Whole
from hlosharding.rules.composition import Extent, composed_signature, join, parts_of

ROWS, WEIGHTS, IDS = (8, 16), (16, 4), (8, 6)


def attention(q: Any, k: Any, v: Any, *, is_causal: bool = False) -> Any:
    scores = jnp.einsum("bthd,bshd->bhts", q, k)
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)


def grouped(q: Any, k: Any, v: Any) -> Any:
    parts = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    scores = jax.nn.softmax(jnp.einsum("btghd,bsgd->bghts", parts, k))
    return jnp.einsum("bghts,bsgd->btghd", scores, v).reshape(q.shape)


def normed(x: Any, w: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w


def repeated(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, carry: jnp.tanh(carry @ w), x)


def grown(x: Any) -> Any:
    return jax.lax.while_loop(lambda x: (x < 9).any(), lambda x: x * x + 1, x)


HEADS = (2, 64, 8, 16)
GROUPS = (2, 32, 4, 16)
# A function, its shapes, its rule, which factors are split freely, and what adds up (or the like) the pieces of others.
CASES: dict[str, tuple[Any, list[tuple[int, ...]], str, str, dict[str, str]]] = {
    "product": (jnp.matmul, [ROWS, WEIGHTS], "a b, b c -> a c", "ac", {"b": "add"}),
    "scaled product": (lambda x, w, s: -(x @ w).T * s, [ROWS, WEIGHTS, ()], "a b, b c,  -> c a", "ac", {"b": "add"}),
    "then no more linear": (lambda x, w: jax.nn.relu(x @ w), [ROWS, WEIGHTS], "a b, b c -> a c", "ac", {}),
    "sums added": (lambda x, y: x.sum(1) + y.sum(1), [ROWS, ROWS], "a b, a c -> a", "a", {}),
    "largest": (lambda x: x.max(0), [ROWS], "a b -> b", "b", {"a": "maximum"}),
    "largest, negated": (lambda x: -x.max(0), [ROWS], "a b -> b", "b", {}),
    "softmax": (jax.nn.softmax, [ROWS], "a b -> a b", "a", {}),
    "norm": (normed, [(2, 8, 16), (16,)], "a b c, c -> a b c", "ab", {}),
    "attention": (attention, [HEADS] * 3, "a b c d, a e c d, a e c f -> a b c f", "abcf", {}),
    "grouped": (grouped, [HEADS, GROUPS, GROUPS], "a b (c d) e, a f c e, a f c g -> a b (c d) g", "abcdg", {}),
    "a matrix by itself": (lambda x: x @ x.T, [ROWS], "a b -> _ _", "", {"b": "add"}),
    "scan over time": (lambda x: jax.lax.cumsum(x, 0), [ROWS], "a b -> a b", "b", {}),
    "loop": (repeated, [(8, 4), (4, 4)], "a b, _ _ -> a b", "a", {}),
    "branches": (lambda s, x: jax.lax.cond(s > 0, jnp.sin, jnp.cos, x), [(), ROWS], ", a b -> a b", "ab", {}),
    "until all are large": (grown, [ROWS], "a b -> a b", "", {}),
    "as many trips as any needs": (
        lambda x, y: jax.lax.while_loop(lambda c: (c[1] < 9).any(), lambda c: (-c[0], c[1] + 1), (x, y))[0],
        [ROWS, (4,)], "a b, c -> a b", "ab", {},
    ),
    "by whether any is large": (
        lambda x: jax.lax.cond((x > 9).any(), jnp.sin, jnp.cos, x), [ROWS], "a b -> a b", "", {},
    ),
    "sums of either branch": (
        lambda s, x: jax.lax.cond(s > 0, lambda x: x.sum(0), lambda x: (2 * x).sum(0), x),
        [(), ROWS], ", a b -> b", "b", {"a": "add"},
    ),
    "sums or largest": (
        lambda s, x: jax.lax.cond(s > 0, lambda x: x.sum(0), lambda x: x.max(0), x),
        [(), ROWS], ", a b -> b", "b", {},
    ),
    "two results": (lambda x: (jnp.sin(x), x.sum(1)), [ROWS], "a b -> a b, a", "a", {"b": "add"}),
    "one is not read": (lambda x, y: x, [ROWS, (4,)], "a b, c -> a b", "ab", {}),
    "positions count": (lambda x: x * jnp.arange(8.0)[:, None], [ROWS], "a b -> a b", "b", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_rule_of_a_function(name: str) -> None:
    function, shapes, text, free, combined = CASES[name]
    found = composed(function, shapes)
    assert str(found) == text
    assert "".join(f.name for f in found.factors if f.owes == Nothing()) == free
    others = {f.name: getattr(f.owes, "kind", "") for f in found.factors if f.owes not in (Nothing(), Whole())}
    assert others == combined


def composed(function: Any, shapes: list[tuple[int, ...]]) -> Signature:
    arrays = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in shapes]
    return composed_signature(hs.trace(function, prepare=False)(*arrays))


def test_queries_that_must_not_see_later_keys_stay_together() -> None:
    found = composed(lambda q, k, v: attention(q, k, v, is_causal=True), [HEADS] * 3)
    assert "".join(f.name for f in found.factors if f.owes == Nothing()) == "acf"


def test_rows_taken_by_number() -> None:
    arrays = jax.ShapeDtypeStruct((32, 16), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.int32)
    found = composed_signature(hs.trace(lambda table, ids: table[ids], prepare=False)(*arrays))
    assert str(found) == "a b, c -> c b"
    assert [f.owes for f in found.factors] == [Whole(), Nothing(), Nothing()]


def test_what_is_rounded_is_no_sum_of_rounded_pieces() -> None:
    numbers = jax.ShapeDtypeStruct(ROWS, jnp.int32)
    found = composed_signature(hs.trace(lambda x: jax.lax.div(x.sum(1), jnp.int32(3)), prepare=False)(numbers))
    assert [f.owes for f in found.factors] == [Nothing(), Whole()]


# ---- extents joined and cut: by the arithmetic of reshapes


def sizes(extents: list[Extent]) -> list[int]:
    return [part.size for part in parts_of(extents)]


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        ([24], [2, 3, 4], [2, 3, 4]),
        ([2, 12], [6, 4], [2, 3, 4]),
        ([4, 6], [6, 4], None),
        ([8, 3], [4, 6], [4, 2, 3]),
        ([1, 8, 1], [8], [8]),
        ([0, 4], [0, 4], [0, 4]),
        ([0], [4], None),
        ([8], [4], None),
        ([], [1], []),
    ],
)
def test_lists_that_line_up_are_cut_alike(first: list[int], second: list[int], parts: list[int] | None) -> None:
    left, right = list(map(Extent, first)), list(map(Extent, second))
    assert join(left, right) == (parts is not None)
    if parts is not None:
        assert sizes(left) == sizes(right) == parts
        assert parts_of(left) == parts_of(right)


def test_what_is_joined_stays_so_when_it_is_cut() -> None:
    rows, same, halves = Extent(8), Extent(8), [Extent(2), Extent(4)]
    assert join([rows], [same])
    assert join([rows], halves)
    assert parts_of([same]) == parts_of(halves)
    assert sizes([rows]) == [2, 4]


def test_an_extent_that_is_met_again_is_itself() -> None:
    rows = Extent(8)
    assert join([rows, Extent(3)], [rows, Extent(3)])
    assert sizes([rows]) == [8]
