"""What may run behind the computation."""

from __future__ import annotations

import jax.numpy as jnp

import hlosharding as hs
from hlosharding.search.optimum.overlapped import Overlapped
from hlosharding.search.optimum.value_classes import ValueClasses
from tests.support.small_steps import descend, floats, perceptron, scanned


def test_weights_are_early_and_gradients_late() -> None:
    step, arguments = perceptron(64, 16, 32, 8)
    module = hs.trace(step)(*arguments)
    classes = ValueClasses(module)
    found = Overlapped.of(module, classes, {2, 3})
    weights, rows = module.entry.parameters[:2], module.entry.parameters[2]
    assert all(classes.leaves[weight][0] in found.early for weight in weights)
    assert classes.leaves[rows][0] not in found.early
    products = {inst.shape.dims: classes.leaves[inst][0] for inst in module.instructions if inst.opcode == "dot"}
    late = {dims for dims, number in products.items() if number in found.late}
    assert late == {(32, 8), (8, 32), (16, 32), (32, 16)} & set(products)
    assert (64, 32) in products  # activations


def test_loops_hand_on_what_is_early_and_what_is_late() -> None:
    step, arguments = scanned(4, 64, 16)
    module = hs.trace(step)(*arguments)
    classes = ValueClasses(module)
    found = Overlapped.of(module, classes, {1})
    products = [inst for inst in module.instructions if inst.opcode == "dot"]
    late = {inst.shape.dims for inst in products if classes.leaves[inst][0] in found.late}
    assert late == {(16, 16)}
    assert {inst.shape.dims for inst in products} == {(16, 16), (64, 16)}
    pieces = [inst for inst in module.instructions if inst.opcode == "dynamic-slice" and inst.shape.size == 16 * 16]
    assert pieces
    assert all(classes.leaves[inst][0] in found.early for inst in pieces)


def test_gradients_of_what_was_broadcast_are_late() -> None:
    """They are summed up, and then over a dim of size 1."""
    step = descend(lambda w, x: jnp.sum(jnp.tanh(x * w.reshape(1, 1, 16))))
    module = hs.trace(step)(floats(16), floats(8, 4, 16))
    classes = ValueClasses(module)
    found = Overlapped.of(module, classes, {1})
    sums = [inst for inst in module.instructions if inst.opcode == "reduce" and inst.operands[0].shape.size == 512]
    assert [classes.leaves[inst][0] in found.late for inst in sums if inst.shape.size == 16] == [True]
