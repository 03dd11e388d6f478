"""What frees memory runs as soon as it can: recomputing a listed layer saves what it saves in a scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from benchmarks.checkpointed_layers import loss_of_perceptron
from hlosharding.cost.memory_order import FreeingFirst


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


LARGE_READ_TWICE = """HloModule m
ENTRY e {{
  x = f32[20,100] parameter(0)
  w = f32[20] parameter(1)
  v = f32[100,3000] parameter(2)
  large = f32[20,100] collective-permute(x), source_target_pairs={{{{0,1}}}}, channel_id=1
  back = f32[100] dot(large, w), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  wide = f32[3000] dot(back, v), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  narrow = f32[100] dot(wide, v), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
  {lacking}
  other = {reader}
  ROOT t = (f32[100], f32[100], {kind}) tuple(narrow, back, other)
}}"""
"""What holds most is `wide`; who reads `large` last lacks something that nobody else reads."""
AT = "zero = s32[] constant(0)  n = u32[] partition-id()  at = s32[] convert(n)"
PART = "f32[1,100] dynamic-slice(large, at, zero), dynamic_slice_sizes={1,100}"
SENT = "u = f32[100] collective-permute(back), source_target_pairs={{0,1}}, channel_id=2"
PRODUCT = "f32[20] dot(large, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(("lacking", "reader"), [(AT, PART), (SENT, PRODUCT)], ids=["a scalar", "a little array"])
def test_a_large_value_does_not_wait_for_what_its_last_reader_lacks(lacking: str, reader: str) -> None:
    text = LARGE_READ_TWICE.format(lacking=lacking, reader=reader, kind=reader.split()[0])
    arguments, large, wide = 4 * (20 * 100 + 20 + 100 * 3000), 4 * 20 * 100, 4 * 3000
    assert arguments + wide < hs.cost(hs.load(text)).peak_memory_bytes < arguments + wide + large


def test_the_order_is_one_in_which_it_can_run() -> None:
    module = hs.trace(jax.grad(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    order = FreeingFirst(module.entry.post_order(), frozenset({"tuple"}), frozenset(), module.entry).order()
    place = {inst: n for n, inst in enumerate(order)}
    assert sorted(place, key=lambda i: i.id) == sorted(module.entry.instructions, key=lambda i: i.id)
    assert all(place[operand] < place[inst] for inst in order for operand in inst.operands)
