"""The DistIR paper's programs: read, verified, run like one device, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.cost import machines
from hlosharding.schedule import Op, UserOp, ValueType, parse_schedule
from tests.support.mlp_ops import FIGURES, arrays, one_device, ops

ROWS = {"pipeline": 4, "checkpointing": 8, "zero": 4}
"""Examples that an op of the figure works on."""
DGX = machines.dgx2_v100(2)


def text_of(figure: str) -> str:
    return (FIGURES / f"{figure}.txt").read_text()


@pytest.mark.parametrize("figure", ROWS)
def test_a_figure_computes_what_one_device_does(figure: str) -> None:
    schedule = parse_schedule(text_of(figure), ops(ROWS[figure]))
    for found, expected in zip(schedule.run_reference(*arrays()), one_device(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("figure", ROWS)
def test_printed_and_read_again_it_is_the_same(figure: str) -> None:
    schedule = parse_schedule(text_of(figure), ops(ROWS[figure]))
    again = parse_schedule(str(schedule), ops(ROWS[figure]))
    assert str(again) == str(schedule)


@pytest.mark.parametrize("figure", ROWS)
def test_a_text_with_its_programs_stands_alone(figure: str) -> None:
    schedule = parse_schedule(text_of(figure), ops(ROWS[figure]))
    alone = parse_schedule(schedule.to_text())
    for found, expected in zip(alone.run_reference(*arrays()), one_device(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert alone.simulate(DGX).time_s == schedule.simulate(DGX).time_s


def costly() -> dict[str, Op]:
    """The figure's ops with the paper's proportions: a backward pass takes two forward passes' time."""

    def same(*operands: ValueType) -> ValueType:
        return operands[-1]

    def both(w: ValueType, x: ValueType, _: ValueType) -> list[ValueType]:
        return [w, x]

    made = (
        UserOp("dense", same, seconds=1.0),
        UserOp("dense_grad", both, seconds=2.0, sums=(0,)),
        UserOp("loss_grad", same, seconds=0.5),
        UserOp("update", same, seconds=0.1),
    )
    return {op.word: op for op in made}


def test_a_swap_of_two_lines_makes_it_slower() -> None:
    """Figure 3: the second activation is sent before the first is used, and the receiver waits for it."""
    lines = text_of("pipeline").splitlines()
    place = next(n for n, line in enumerate(lines) if "%p_1 = call" in line)
    lines[place], lines[place + 1] = lines[place + 1], lines[place]
    straight, swapped = (parse_schedule(text, costly()) for text in (text_of("pipeline"), "\n".join(lines)))
    slower = (
        swapped.simulate(DGX, semantics="synchronous").time_s - straight.simulate(DGX, semantics="synchronous").time_s
    )
    assert slower == pytest.approx(1.0, rel=1e-3)  # one dense layer's time
    assert swapped.simulate(DGX).time_s == pytest.approx(straight.simulate(DGX).time_s, rel=1e-3)


def test_recomputing_saves_the_freed_activation() -> None:
    """Figure 8 against the program that keeps the activation: less at the moment of the loss, more time."""
    text = text_of("checkpointing")
    kept = text.replace("  free %as_f\n", "").replace("  %as_b = @dense(%w1, %x)\n", "").replace("%as_b", "%as_f")
    recomputed, plain = (parse_schedule(each, costly()).simulate(DGX) for each in (text, kept))

    def held_in_loss(found: str) -> float:
        run = parse_schedule(found, costly()).simulate(DGX)
        [loss] = [event for event in run.timeline if "loss_grad" in event.text]
        [level] = run.memory
        return float(level.nbytes[level.times.searchsorted(loss.start, side="right") - 1])

    assert held_in_loss(kept) - held_in_loss(text) == 8 * 16 * 4
    assert recomputed.time_s == pytest.approx(plain.time_s + 1.0, rel=1e-6)


def test_owners_hold_one_layer_each() -> None:
    """Figure 9: at the loss a device holds its own layer and its activations; the other's weights are given back."""
    run = parse_schedule(text_of("zero"), ops(4)).simulate(DGX, semantics="synchronous")
    layer, rows = 16 * 16 * 4, 4 * 16 * 4
    [loss] = [event for event in run.timeline if event.text.startswith("%dp_2")]
    held = run.memory[1].nbytes[run.memory[1].times.searchsorted(loss.start, side="right") - 1]
    assert held == layer + 5 * rows  # x, y, the first layer's result, the prediction, its gradient
