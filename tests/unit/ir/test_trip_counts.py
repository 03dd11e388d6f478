"""What trip count the counter of a loop says."""

from __future__ import annotations

import pytest

from hlosharding import load
from hlosharding.errors import ModuleError
from hlosharding.ir import Module, executions, guessed_loops, trip_count, with_trip_counts

LOOP = """
HloModule m

condition {{
  c = (s32[], f32[4]{extra_type}) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  {limit}
  ROOT less = pred[] compare({compared}), direction={direction}
}}

body {{
  b = (s32[], f32[4]{extra_type}) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[4] get-tuple-element(b), index=1
  step = s32[] constant({step})
  next = s32[] {update}
  y = f32[4] add(x, x)
  {kept}
  ROOT out = (s32[], f32[4]{extra_type}) tuple(next, y{extra_kept})
}}

ENTRY main {{
  p = f32[4] parameter(0)
  start = s32[] {start}
  {extra_start}
  init = (s32[], f32[4]{extra_type}) tuple(start, p{extra_init})
  ROOT loop = (s32[], f32[4]{extra_type}) while(init), condition=condition, body=body
}}
"""


def loop(text: str = LOOP, **changes: str) -> Module:
    parts = {
        "start": "constant(0)",
        "step": "1",
        "limit": "n = s32[] constant(10)",
        "compared": "i, n",
        "direction": "LT",
        "update": "add(j, step)",
        "extra_type": "",
        "extra_kept": "",
        "extra_start": "",
        "extra_init": "",
        "kept": "",
    }
    return load(text.format(**(parts | changes)))


@pytest.mark.parametrize(
    ("changes", "trips"),
    [
        ({}, 10),
        ({"step": "3"}, 4),
        ({"start": "constant(4)"}, 6),
        ({"direction": "LE"}, 11),
        ({"direction": "NE", "step": "5"}, 2),
        ({"start": "constant(20)"}, 0),
        ({"compared": "n, i", "direction": "GT"}, 10),
        ({"update": "add(step, j)"}, 10),
        ({"limit": "n = s64[] constant(10)  wide = s64[] convert(i)", "compared": "wide, n"}, 10),
        ({"start": "constant(10)", "limit": "n = s32[] constant(0)", "direction": "GT", "step": "-2"}, 5),
        (
            {
                "start": "constant(10)",
                "limit": "n = s32[] constant(0)",
                "direction": "GE",
                "update": "subtract(j, step)",
            },
            11,
        ),
    ],
)
def test_counted_loops(changes: dict[str, str], trips: int) -> None:
    assert trip_count(loop(**changes).by_name("loop")) == (trips, True)


def test_a_start_that_is_copied_meanwhile() -> None:
    moved = "s = s32[] constant(4)  moving = (s32[], s32[], u32[]) copy-start(s)  start = s32[] copy-done(moving)"
    text = LOOP.replace("start = s32[] {start}", moved)
    assert trip_count(loop(text).by_name("loop")) == (6, True)


@pytest.mark.parametrize("count", ["-3", "Infinity", '"many"', "null"])
def test_what_is_no_count_says_nothing(count: str) -> None:
    said = 'body=body, backend_config={{"known_trip_count":{{"n":COUNT}}}}'.replace("COUNT", count)
    assert trip_count(loop(LOOP.replace("body=body", said)).by_name("loop")) == (10, True)


def test_a_limit_that_the_loop_carries_unchanged() -> None:
    carried = loop(
        extra_type=", s32[]",
        limit="n = s32[] get-tuple-element(c), index=2",
        kept="k = s32[] get-tuple-element(b), index=2",
        extra_kept=", k",
        extra_start="limit = s32[] constant(6)",
        extra_init=", limit",
    )
    assert trip_count(carried.by_name("loop")) == (6, True)


def test_a_limit_that_the_loop_changes_says_nothing() -> None:
    carried = loop(
        extra_type=", s32[]",
        limit="n = s32[] get-tuple-element(c), index=2",
        kept="k = s32[] get-tuple-element(b), index=2  m = s32[] add(k, j)",
        extra_kept=", m",
        extra_start="limit = s32[] constant(6)",
        extra_init=", limit",
    )
    assert trip_count(carried.by_name("loop")) == (100, False)


def test_what_xla_wrote_down_comes_first() -> None:
    text = LOOP.format(
        start="constant(0)", step="1", limit="n = s32[] constant(10)", compared="i, n", direction="LT",
        update="add(j, step)", extra_type="", extra_kept="", extra_start="", extra_init="", kept="",
    )  # fmt: skip
    text = text.replace("body=body", 'body=body, backend_config={"known_trip_count":{"n":"7"}}')
    assert trip_count(load(text).by_name("loop")) == (7, True)


@pytest.mark.parametrize(
    ("changes", "guess"),
    [
        ({"start": "parameter(1)"}, (10, False)),  # the limit is the best guess
        ({"update": "multiply(j, step)"}, (10, False)),
        ({"direction": "NE", "step": "3"}, (100, False)),
        ({"direction": "EQ"}, (100, False)),
        ({"limit": "one = s32[] constant(1)  n = s32[] add(i, one)"}, (100, False)),
        # It wraps around, and never ends.
        ({"limit": "n = s32[] constant(2147483647)", "direction": "LE"}, (1 << 31, False)),
        # 300 is 44 there: 56 trips.
        (
            {"start": "constant(300)", "limit": "n = s8[] constant(100)  low = s8[] convert(i)", "compared": "low, n"},
            (100, False),
        ),
    ],
)
def test_a_count_that_nobody_can_tell_is_marked(changes: dict[str, str], guess: tuple[int, bool]) -> None:
    assert trip_count(loop(**changes).by_name("loop")) == guess


ENDLESS = loop(compared="n, n")


def test_loops_that_nobody_can_count_are_named() -> None:
    assert [(found.name, found.trips) for found in guessed_loops(executions(ENDLESS))] == [("loop", 100)]
    assert "how often %loop runs is not known" in str(guessed_loops(executions(ENDLESS))[0])
    assert guessed_loops(executions(loop())) == ()


@pytest.mark.parametrize("name", ["loop", "%loop"])
def test_stated_trips_are_what_xla_would_have_written(name: str) -> None:
    stated = with_trip_counts(ENDLESS, {name: 12})
    assert trip_count(stated.by_name("loop")) == (12, True)
    assert trip_count(load(stated.to_hlo_text()).by_name("loop")) == (12, True)
    assert {c.name: runs.count for c, runs in executions(stated).items()} == {"main": 1, "body": 12, "condition": 13}
    assert not trip_count(ENDLESS.by_name("loop")).is_exact


def test_what_else_the_loop_says_is_kept() -> None:
    text = ENDLESS.to_hlo_text().replace("body=%body", 'body=%body, backend_config={"known_init_step":{"init":"0"}}')
    assert "known_init_step" in with_trip_counts(load(text), {"loop": 3}).by_name("loop").opaque


def test_trips_of_a_source_line() -> None:
    text = ENDLESS.to_hlo_text().replace(
        "body=%body", 'body=%body, metadata={source_file="/src/model.py" source_line=31}'
    )
    assert trip_count(with_trip_counts(load(text), {"model.py:31": 5}).by_name("loop")) == (5, True)


@pytest.mark.parametrize(
    ("trips", "message"), [({"lop": 3}, "did you mean loop"), ({"loop": -1}, "trips of loop are -1")]
)
def test_trips_of_no_loop_and_no_trips_are_refused(trips: dict[str, int], message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        with_trip_counts(ENDLESS, trips)


def test_calls_that_double_with_each_call_are_not_all_followed() -> None:
    calls = ["HloModule m", "call0 {  p = s32[] parameter(0)  ROOT r = s32[] copy(p)\n}"]
    for n in range(1, 60):
        twice = f"a = s32[] call(p), to_apply=call{n - 1}  ROOT r = s32[] call(a), to_apply=call{n - 1}"
        calls.append(f"call{n} {{\n  p = s32[] parameter(0)  {twice}\n}}")
    text = LOOP.replace("HloModule m", "\n".join(calls).replace("{", "{{").replace("}", "}}"))
    far = loop(text, limit="ten = s32[] constant(10)  n = s32[] call(ten), to_apply=call59")
    assert trip_count(far.by_name("loop")) == (100, False)


def test_a_limit_that_comes_through_a_fusion_and_a_call() -> None:
    text = """
HloModule m

limit_of {
  ROOT n = s32[] constant(7)
}

fused {
  k = s32[] parameter(0)
  ROOT same = s32[] copy(k)
}

condition {
  c = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  said = s32[] call(), to_apply=limit_of
  n = s32[] fusion(said), kind=kLoop, calls=fused
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  b = (s32[], f32[4]) parameter(0)
  j = s32[] get-tuple-element(b), index=0
  x = f32[4] get-tuple-element(b), index=1
  one = s32[] constant(1)
  next = s32[] add(j, one)
  ROOT out = (s32[], f32[4]) tuple(next, x)
}

ENTRY main {
  p = f32[4] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[4]) tuple(zero, p)
  ROOT loop = (s32[], f32[4]) while(init), condition=condition, body=body
}
"""
    assert trip_count(load(text).by_name("loop")) == (7, True)


TWO_LIMITS = """HloModule m
condition {
  c = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  j = s32[] get-tuple-element(c), index=1
  n = s32[] get-tuple-element(c), index=2
  k = s32[] constant(LIMIT)
  first = pred[] compare(i, n), direction=LT
  second = pred[] compare(j, k), direction=LT
  ROOT both = pred[] and(first, second)
}
back {
  d = (s32[], s32[]) parameter(0)
  l = s32[] get-tuple-element(d), index=0
  m = s32[] get-tuple-element(d), index=1
  ROOT less = pred[] compare(l, m), direction=LT
}
body {
  b = (s32[], s32[], s32[]) parameter(0)
  one = s32[] constant(1)
  p = s32[] get-tuple-element(b), index=0
  q = s32[] get-tuple-element(b), index=1
  r = s32[] get-tuple-element(b), index=2
  s = s32[] add(p, one)
  t = s32[] add(q, one)
  ROOT out = (s32[], s32[], s32[]) tuple(s, t, r)
}
backwards {
  e = (s32[], s32[]) parameter(0)
  two = s32[] constant(2)
  u = s32[] get-tuple-element(e), index=0
  v = s32[] get-tuple-element(e), index=1
  w = s32[] add(u, two)
  ROOT end = (s32[], s32[]) tuple(w, v)
}
ENTRY main {
  zero = s32[] constant(0)
  three = s32[] constant(3)
  most = s32[] constant(12)
  init = (s32[], s32[], s32[]) tuple(zero, three, most)
  loop = (s32[], s32[], s32[]) while(init), condition=condition, body=body
  ran = s32[] get-tuple-element(loop), index=INDEX
  again = (s32[], s32[]) tuple(zero, ran)
  ROOT grad = (s32[], s32[]) while(again), condition=back, body=backwards
}
"""


@pytest.mark.parametrize(("limit", "trips"), [(20, 12), (12, 9), (2, 0)])
def test_of_two_limits_the_first_ends_the_loop_and_its_count_another(limit: int, trips: int) -> None:
    """As TensorFlow writes loops with a most of trips, and their gradients."""
    for index in (0, 1):
        module = load(TWO_LIMITS.replace("LIMIT", str(limit)).replace("INDEX", str(index)))
        assert trip_count(module.by_name("loop")) == (trips, True)
        left = trips + (0, 3)[index]
        counted = index == (0 if limit == 20 else 1)  # the other counter is not the one that is known
        assert trip_count(module.by_name("grad"))[1] == counted
        assert not counted or trip_count(module.by_name("grad")) == ((left + 1) // 2, True)


@pytest.mark.parametrize(("most", "trips"), [(12, 12), (1_000_000, 100)])
def test_the_most_trips_of_a_loop_that_may_end_before_are_a_guess_if_they_are_few(most: int, trips: int) -> None:
    never = "first = pred[] compare(i, n), direction=NE"
    text = TWO_LIMITS.replace("first = pred[] compare(i, n), direction=LT", never)
    module = load(text.replace("LIMIT", str(most)).replace("INDEX", "0").replace("add(p, one)", "add(p, p)"))
    assert trip_count(module.by_name("loop")) == (trips, False)


def test_a_chain_of_loops_is_followed_one_back() -> None:
    """Each starts both its counters where the one before ended: followed to the first, forty took 2^40 steps."""
    text = TWO_LIMITS.replace("LIMIT", "20").replace("INDEX", "0")
    head, tail = text.split("  again = ")
    for k in range(40):
        before = "ran" if k == 0 else f"ran{k - 1}"
        head += f"  from{k} = (s32[], s32[], s32[]) tuple({before}, {before}, most)\n"
        head += f"  loop{k} = (s32[], s32[], s32[]) while(from{k}), condition=condition, body=body\n"
        head += f"  ran{k} = s32[] get-tuple-element(loop{k}), index=0\n"
    module = load(f"{head}  again = {tail}")
    assert trip_count(module.by_name("loop0")) == (0, True)
    assert not trip_count(module.by_name("loop39")).is_exact
