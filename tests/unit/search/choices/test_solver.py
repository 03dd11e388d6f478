"""Choices against all there are, of problems of a few nodes."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.iopddl import problem_of, read_instance, write_instance
from hlosharding.errors import HloShardingError
from hlosharding.search.choices import SelectionProblem, solve_choices
from hlosharding.search.choices.descent import descend, least_memory
from hlosharding.search.choices.integer_solvers import solve_by_or_tools
from hlosharding.search.choices.messages import Messages
from hlosharding.search.choices.reductions import merge_followers
from hlosharding.search.choices.whole import solve_whole

SMALL = st.integers(0, 9).map(float)


def best_of_all(problem: SelectionProblem) -> float:
    """The least cost that fits, `inf` where nothing does."""
    sizes = [range(len(costs)) for costs in problem.costs]
    fits = (np.array(chosen) for chosen in product(*sizes))
    return min((problem.cost_of(chosen) for chosen in fits if problem.is_feasible(chosen)), default=np.inf)


@st.composite
def problems(draw: st.DrawFn, *, forbidden: bool = True) -> SelectionProblem:
    """Up to six nodes; nodes that follow each other, forbidden choices and pairs, buffers that overlap."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    pairs = [(a, b) for b in range(len(sizes)) for a in range(b) if draw(st.booleans())]
    costs = [np.array([draw(SMALL) for _ in range(size)]) for size in sizes]
    tables = [np.array([[draw(SMALL) for _ in range(sizes[b])] for _ in range(sizes[a])]) for a, b in pairs]
    if forbidden:
        for (a, b), table in zip(pairs, tables, strict=True):
            if sizes[a] == sizes[b] and draw(st.booleans()):
                table[np.arange(sizes[a]) != np.array(draw(st.permutations(range(sizes[a]))))[:, None]] = np.inf
        for cells in (*costs, *tables):
            if draw(st.integers(0, 5)) == 0:
                cells.flat[draw(st.integers(0, cells.size - 1))] = np.inf
    owners = draw(st.lists(st.integers(0, len(sizes) - 1), max_size=8))
    spans = [sorted(draw(st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True))) for _ in owners]
    usages = [np.array([draw(SMALL) for _ in range(sizes[node])]) for node in owners]
    return SelectionProblem(
        tuple(costs),
        np.array(pairs, np.int64).reshape(-1, 2),
        tuple(tables),
        np.array(owners, np.int64),
        np.array(spans, np.int64).reshape(-1, 2),
        tuple(usages),
        np.full(5, draw(st.integers(0, 30)), float),
    )


@given(problems())
def test_the_optimum_is_found(problem: SelectionProblem) -> None:
    best, found = best_of_all(problem), solve_choices(problem, seconds=2)
    assert found.cost == pytest.approx(best)
    assert found.is_proven
    if found.chosen is not None:
        assert problem.is_feasible(found.chosen)
        assert problem.cost_of(found.chosen) == found.cost


@given(problems())
def test_solvers_find_the_same_optimum(problem: SelectionProblem) -> None:
    pytest.importorskip("ortools", reason="OR-tools, the extra or-tools, is not installed")
    best, found = best_of_all(problem), solve_whole(problem, 10.0, solver=solve_by_or_tools)
    assert (found.cost, found.bound) == (pytest.approx(best), pytest.approx(best))
    assert found.chosen is None or problem.is_feasible(found.chosen)


def test_memory_is_kept_beyond_the_tolerance_of_a_solver() -> None:
    """The cheaper choices take 1e-7 more than there is, by themselves and together."""
    costs, sizes = (np.array([1.0, 3.0]),) * 2, (np.array([0.5 + 1e-7, 0.25]),) * 2
    alone, both = np.array([[0, 1], [2, 3]]), np.array([[0, 1], [0, 1]])
    for spans, capacity in ((alone, np.full(3, 0.5)), (both, np.ones(1))):
        problem = SelectionProblem(costs, np.zeros((0, 2), int), (), np.arange(2), spans, sizes, capacity)
        found = solve_whole(problem, 10.0)
        assert found.cost == best_of_all(problem) == (6.0 if spans is alone else 4.0)
        assert found.is_proven


def test_a_solver_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.linear_solver.python.model_builder", None)
    none = np.zeros(0, int)
    problem = SelectionProblem((np.ones(2),), np.zeros((0, 2), int), (), none, np.zeros((0, 2), int), (), np.ones(1))
    with pytest.raises(HloShardingError, match="OR-tools is not installed; pip install"):
        solve_whole(problem, 10.0, solver=solve_by_or_tools)


@given(problems())
def test_what_is_left_out_is_not_needed(problem: SelectionProblem) -> None:
    reduced = merge_followers(problem)
    if all(map(len, reduced.problem.costs)):
        assert best_of_all(reduced.problem) == pytest.approx(best_of_all(problem))
        chosen = np.array([len(costs) - 1 for costs in reduced.problem.costs])
        assert reduced.problem.cost_of(chosen) == pytest.approx(problem.cost_of(reduced.expand(chosen)))
    else:
        assert best_of_all(problem) == np.inf


@given(problems(forbidden=False), st.lists(SMALL, min_size=5, max_size=5))
def test_no_choices_are_below_what_messages_say(problem: SelectionProblem, prices: list[float]) -> None:
    messages, best = Messages(problem), best_of_all(problem)
    for _ in range(4):
        chosen, bound = messages.round(np.array(prices))
        assert bound <= best + 1e-6
        assert len(chosen) == problem.num_nodes


@given(problems(forbidden=False))
def test_branches_alone_are_solved_by_messages(problem: SelectionProblem) -> None:
    """A path through the nodes, memory for nothing: one round says the optimum."""
    path = [edge for edge, (a, b) in enumerate(problem.pairs.tolist()) if b == a + 1]
    tables = tuple(problem.pair_costs[edge] for edge in path)
    none = np.zeros((0, 2), np.int64)
    free = SelectionProblem(problem.costs, problem.pairs[path], tables, none[:, 0], none, (), np.zeros(5))
    chosen, bound = Messages(free).round(np.zeros(5))
    assert bound == pytest.approx(best_of_all(free))
    assert free.cost_of(chosen) == pytest.approx(best_of_all(free))


@given(problems(forbidden=False))
def test_a_search_finds_choices_that_fit(problem: SelectionProblem) -> None:
    """What is found costs no less than the optimum, which is between it and the bound."""
    best, found = best_of_all(problem), descend(problem, seconds=0.05)
    assert found.bound <= best + 1e-6
    assert found.cost >= best - 1e-6
    if found.chosen is not None:
        assert problem.is_feasible(found.chosen)


def test_a_search_finds_the_optimum_of_a_ring() -> None:
    """Each of 30 nodes agrees with its neighbours, or pays; memory is for half of them to take the cheaper choice."""
    count, agree = 30, np.array([[0.0, 1.0], [1.0, 0.0]])
    pairs = np.array([[n, (n + 1) % count] for n in range(count)])
    ring = SelectionProblem(
        tuple(np.array([0.0, 3.0]) for _ in range(count)),
        pairs,
        (agree,) * count,
        np.arange(count),
        np.array([[0, 2]] * count),
        tuple(np.array([2.0, 1.0]) for _ in range(count)),
        np.full(2, 45.0),
    )
    assert least_memory(ring) is not None
    assert descend(ring, seconds=2).cost == 15 * 3 + 2 == solve_choices(ring).cost


EXAMPLE = {
    "nodes": {
        "intervals": [[0, 4], [1, 4], [2, 9], [8, 10], [3, 3]],
        "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95, 10**18]],
        "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15, 99]],
    },
    "edges": {"nodes": [[0, 1], [0, 2], [1, 3]], "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 10**18]]},
    "usage_limit": 50,
}


def test_an_instance_of_the_contest_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"problem": EXAMPLE}))
    problem = read_instance(tmp_path / "x.json")
    assert problem.num_nodes == 5
    # What is never live takes no memory; the second choice of the third node does not fit beside the first two.
    assert solve_choices(problem).cost == best_of_all(problem) == 15 + 55 + 30 + 10 + 75 + 25 + 50 + 95


def test_a_program_is_written_as_an_instance(tmp_path: Path) -> None:
    problem = problem_of("MoE, dense", 2)
    write_instance(problem, tmp_path / "instance.json")
    again = read_instance(tmp_path / "instance.json")
    assert len(again.owners) == len(problem.owners)
    first, second = solve_choices(problem, 30), solve_choices(again, 30)
    assert second.cost / 1e12 == pytest.approx(first.cost, rel=1e-4)
    assert second.chosen is not None
    assert problem.cost_of(second.chosen[: problem.num_nodes]) == pytest.approx(first.cost, rel=1e-4)
