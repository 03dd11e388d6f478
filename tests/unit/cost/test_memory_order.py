"""What frees memory runs as soon as it can: recomputing a listed layer saves what it saves in a scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks.checkpointed_layers import loss_of_perceptron
from hlosharding.cost.memory_order import freeing_first


def peak(*, is_scanned: bool, policy: str) -> int:
    """Bytes of the gradient of layers 256-1024-256."""
    loss, arguments = loss_of_perceptron(policy, is_scanned=is_scanned)
    return hs.cost(hs.trace(jax.grad(loss))(*arguments)).peak_memory_bytes


def test_recomputing_saves_as_much_of_listed_layers_as_of_scanned_ones() -> None:
    listed, scanned = (peak(is_scanned=scan, policy="nothing_saveable") for scan in (False, True))
    assert peak(is_scanned=False, policy="none") > 1.8 * listed
    assert listed == pytest.approx(scanned, rel=0.15)


def test_an_update_over_a_donated_weight_frees_its_gradient() -> None:
    """All gradients at once would take four places; x is read by all."""
    names, lines = [], []
    for n in range(4):
        lines += [
            f"w{n} = f32[1000] parameter({n})",
            f"g{n} = f32[1000] collective-permute(x), source_target_pairs={{{{0,1}}}}, channel_id={n + 1}",
            f"new{n} = f32[1000] subtract(w{n}, g{n})",
        ]
        names.append(f"new{n}")
    aliases = ", ".join(f"{{{n}}}: ({n}, {{}}, may-alias)" for n in range(4))
    gradients, updates = lines[1::3], lines[2::3]
    body = "\n".join(["x = f32[1000] parameter(4)", *lines[::3], *gradients, *updates])
    root = f"ROOT t = (f32[1000], f32[1000], f32[1000], f32[1000]) tuple({', '.join(names)})"
    module = hs.load(f"HloModule m, input_output_alias={{ {aliases} }}\nENTRY e {{\n{body}\n{root}\n}}")
    assert hs.cost(module).peak_memory_bytes == 6 * 4000


def test_the_order_is_one_in_which_it_can_run() -> None:
    module = hs.trace(jax.grad(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    order = freeing_first(module.entry.post_order(), frozenset({"tuple"}), frozenset(), module.entry)
    place = {inst: n for n, inst in enumerate(order)}
    assert sorted(place, key=lambda i: i.id) == sorted(module.entry.instructions, key=lambda i: i.id)
    assert all(place[operand] < place[inst] for inst in order for operand in inst.operands)
