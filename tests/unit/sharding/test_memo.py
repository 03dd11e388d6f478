"""Memoised answers: asked once, spelled as the question, gone with the sharding."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlosharding.sharding import HloSharding, group_sharding_on_dims, memoised, merge_sharding, transpose_sharding

parse = HloSharding.parse


def test_answers_are_remembered():
    s = parse("{devices=[2,4]<=[8]}")
    assert transpose_sharding(s, (1, 0)) is transpose_sharding(s, [1, 0])
    assert transpose_sharding(s, perm=(1, 0)) is transpose_sharding(sharding=s, perm=(1, 0))


def test_equal_shardings_get_answers_in_their_own_spelling():
    short, listed = parse("{devices=[2,2]<=[4]}"), parse("{devices=[2,2]0,1,2,3}")
    assert str(transpose_sharding(short, (1, 0))) == "{devices=[2,2]<=[2,2]T(1,0)}"
    assert str(transpose_sharding(listed, (1, 0))) == "{devices=[2,2]0,2,1,3}"
    noted = parse('{devices=[2,2]<=[4] metadata={op_name="a"}}')
    assert transpose_sharding(noted, (1, 0)).metadata == noted.metadata
    assert merge_sharding(HloSharding.replicate(), noted, True)[1] is noted
    assert merge_sharding(HloSharding.replicate(), listed, True)[1] is listed


def test_keywords_with_gaps_reach_the_function():
    s = parse("{devices=[2,2]<=[4] last_tile_dims={manual}}")
    assert group_sharding_on_dims(s, (1,), subgroup_manual=True).subgroup_manual
    assert not group_sharding_on_dims(s, (1,)).subgroup_manual


def test_each_function_is_asked_once_per_question():
    asked: list[tuple[str, str, int]] = []

    @memoised
    def join(first: HloSharding, second: HloSharding, number: int) -> int:
        asked.append((str(first), str(second), number))
        return number

    a, b = HloSharding.iota_tile((3,)), HloSharding.iota_tile((5,))
    for _ in range(3):
        join(a, b, 1)
        join(b, a, 1)
        join(a, b, 2)
    assert len(asked) == 3


def test_errors_are_not_swallowed():
    asked: list[int] = []

    @memoised
    def fail(sharding: HloSharding, number: int) -> int:
        asked.append(number)
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        fail(HloSharding.replicate(), 1)
    assert asked == [1]
    with pytest.raises(TypeError):
        fail(HloSharding.replicate())  # type: ignore[call-arg]


def test_shardings_nobody_holds_are_forgotten():
    text = '{devices=[2,3]<=[6] metadata={op_name="only here"}}'
    first = parse(text).uid
    transpose_sharding(parse(text), (1, 0))
    gc.collect()
    assert parse(text).uid != first


def test_threads_intern_one_value_a_spelling():
    texts = [f"{{devices=[{n},2]<=[2,{n}]T(1,0)}}" for n in range(40, 140)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [parse(text) for text in texts], range(8)))
    assert all(mine is first for row in found for mine, first in zip(row, found[0], strict=True))
