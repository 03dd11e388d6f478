"""Peak memory of random straight-line programs equals a liveness written down the slow and obvious way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlosharding.cost import peak_memory
from hlosharding.cost.memory_order import FreeingFirst
from hlosharding.ir import Builder, Instruction, Module, Shape

UNIT = 4

programs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=25)


def build(steps: list[tuple[int, int, int]]) -> Module:
    """Step (a, b, size): a new value of `size` units made of two earlier ones, by an op that writes over nothing."""
    b = Builder("m", num_partitions=2)
    main = b.computation("main")
    values = [main.parameter(n, Shape.array("f32", (n + 1,))) for n in range(2)]
    for first, second, size in steps:
        operands = (values[first % len(values)], values[second % len(values)])
        values.append(main.add("custom-call", Shape.array("f32", (size,)), operands, custom_call_target="opaque"))
    return b.finish(main)


def slow_peak(order: list[Instruction], root: Instruction) -> int:
    worst = 0
    for now in range(len(order)):
        alive = 0
        for made, value in enumerate(order):
            used_later = any(value in user.operands for user in order[now:])
            is_here = made <= now and (used_later or value is root or made == now)
            alive += value.shape.byte_size if value.opcode == "parameter" or is_here else 0
        worst = max(worst, alive)
    return worst


@given(programs)
def test_peak_is_the_best_of_text_post_order_and_what_frees_first(steps: list[tuple[int, int, int]]) -> None:
    module = build(steps)
    entry = module.entry
    orders = [entry.instructions]
    if len(entry.post_order()) == len(entry.instructions):
        orders.append(entry.post_order())
    orders.append(FreeingFirst(orders[-1], frozenset(), frozenset(), entry).order())
    assert peak_memory(module).bytes == min(slow_peak(order, entry.root) for order in orders)
