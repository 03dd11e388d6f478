"""XLA's orders: post order, users, and what a rewrite does to them."""

from __future__ import annotations

from hlosharding.propagation.graph import PropagationGraph
from tests.support.propagated_texts import module, run

DEAD = (
    "  %dead = f32[4] parameter(1)\n  %x = f32[4] parameter(0)\n  %a = f32[4] negate(%x)\n"
    "  %b = f32[4] add(%a, %dead)\n  %c = f32[4] negate(%dead)\n  ROOT %r = f32[4] multiply(%a, %x)"
)


def names(graph: PropagationGraph, ids: list[int]) -> list[str]:
    return [graph.instructions[i].name for i in ids]


def test_post_order_starts_at_each_userless_instruction_in_text_order() -> None:
    graph = PropagationGraph(module(DEAD))
    assert names(graph, graph.order[0]) == ["dead", "x", "a", "b", "c", "r"]
    assert names(graph, graph.post_order(0)) == ["x", "a", "dead", "b", "c", "r"]


def test_users_stand_in_the_order_of_the_text_and_once_each() -> None:
    graph = PropagationGraph(
        module("  %x = f32[4] parameter(0)\n  %a = f32[4] add(%x, %x)\n  ROOT %b = f32[4] add(%a, %x)")
    )
    x = graph.order[0][0]
    assert names(graph, graph.users[x]) == ["a", "b"]


def test_a_call_that_becomes_a_copy_is_listed_last() -> None:
    body = (
        '  %x = f32[4] parameter(0)\n  %c = f32[4] custom-call(%x), custom_call_target="Sharding",'
        " sharding={replicated}\n  ROOT %r = f32[4] negate(%x)"
    )
    graph = PropagationGraph(module(body))
    graph.become_copy(graph.order[0][1])
    graph.list_copies()
    assert names(graph, graph.post_order(0)) == ["x", "r", "c"]


def test_a_bypassed_call_leaves_its_users_its_operand() -> None:
    body = (
        "  %x = f32[4] parameter(0)\n  %n = f32[4] negate(%x)\n"
        '  %c = f32[4] custom-call(%n), custom_call_target="ShardBarrierFrom"\n  ROOT %r = f32[4] negate(%c)'
    )
    result = run(body).module
    assert [i.name for i in result.instructions] == ["x", "n", "r"]
    assert result.by_name("r").operands[0].name == "n"
