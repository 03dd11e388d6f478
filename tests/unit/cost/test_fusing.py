"""Which values are kernels' own, and what kernels move."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost import peak_memory, temporary_memory
from hlosharding.cost.fusing import find_hidden, find_ops_inside, kernel_bytes
from hlosharding.cost.work import op_work
from hlosharding.ir import Module

SIZE = 4 * 1024
"""Bytes of one value."""


def module_of(lines: str, inputs: int) -> Module:
    given = "".join(f"  x{n} = f32[1024] parameter({n})\n" for n in range(inputs))
    return hs.load(f"HloModule m\nENTRY e {{\n{given}{lines}\n}}")


def kernel_traffic(module: Module) -> float:
    entry = module.entry
    hidden = find_hidden(entry)
    return sum(kernel_bytes(op, op_work(op).bytes, hidden) for op in entry.instructions if op.opcode != "parameter")


def test_a_kernel_reads_each_value_once() -> None:
    """(x + y) * (x - y): two values are read, one is written, whatever is made of them inside."""
    module = module_of(
        "  a = f32[1024] add(x0, x1)\n  b = f32[1024] subtract(x0, x1)\n  ROOT c = f32[1024] multiply(a, b)", 2
    )
    assert kernel_traffic(module) == 3 * SIZE
    hidden = find_hidden(module.entry)
    assert {op.name for op in find_ops_inside(module.by_name("c"), hidden)} == {"a", "b"}


def test_what_several_kernels_compute_is_read_by_each() -> None:
    """Two results of one cheap value of one input: both kernels read the input."""
    lines = "  a = f32[1024] negate(x0)\n  b = f32[1024] exponential(a)\n  c = f32[1024] sine(a)\n"
    lines += "  ROOT t = (f32[1024], f32[1024]) tuple(b, c)"
    assert kernel_traffic(module_of(lines, 1)) == 4 * SIZE


@pytest.mark.parametrize(("inputs", "is_written"), [(1, False), (2, False), (4, True)])
def test_a_value_with_readers_is_written_where_that_moves_less(inputs: int, is_written: bool) -> None:
    """A sum of n inputs with two readers: 2 n reads, or n + 2 and a write."""
    lines = "  v1 = f32[1024] negate(x0)\n"
    lines += "".join(f"  v{n + 1} = f32[1024] add(v{n}, x{n})\n" for n in range(1, inputs))
    lines += f"  b = f32[1024] exponential(v{inputs})\n  c = f32[1024] sine(v{inputs})\n"
    module = module_of(lines + "  ROOT t = (f32[1024], f32[1024]) tuple(b, c)", inputs)
    assert (module.by_name(f"v{inputs}") not in find_hidden(module.entry)) == is_written
    assert kernel_traffic(module) == min(2 * inputs + 2, inputs + 1 + 4) * SIZE


def test_a_residual_stream_does_not_keep_the_layers_products() -> None:
    """Memory of a deep forward pass is that of one layer, however many there are."""

    def net(weights, x):  # type: ignore[no-untyped-def]
        for w in weights:
            centred = x - x.mean(axis=-1, keepdims=True)
            x = x + jnp.tanh((centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)) @ w)
        return x

    def temporaries(layers: int) -> int:
        return temporary_memory(hs.trace(net)([jnp.ones((64, 64))] * layers, jnp.ones((512, 64))))

    assert temporaries(40) <= temporaries(8) <= 8 * 512 * 64 * 4


def test_slices_of_a_hidden_value_read_a_part() -> None:
    lines = "  a = f32[1024] negate(x0)\n  ROOT b = f32[256] slice(a), slice={[0:256]}"
    assert kernel_traffic(module_of(lines, 1)) == 2 * 256 * 4


def test_peaks_count_what_is_written() -> None:
    """An absorbed value takes no room at any moment: input and result only."""
    module = module_of("  a = f32[1024] negate(x0)\n  ROOT b = f32[1024] abs(a)", 1)
    assert peak_memory(module).bytes == 2 * SIZE


def test_zeros_that_a_scatter_adds_into_are_made_anew_by_other_kernels() -> None:
    """As XLA has it for one device: a fusion that makes them, and reads and writes one array."""

    def net(x: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros_like(x).at[rows].add(x), jnp.exp(jnp.maximum(x, 0.0))

    x, rows = jnp.ones(1024), jnp.zeros(1024, int)
    module = hs.trace(net)(x, rows)
    [kernel] = module.of_opcodes("exponential")
    moved = kernel_bytes(kernel, op_work(kernel).bytes, find_hidden(module.entry))
    live = hs.load(jax.jit(net).lower(x, rows).compile())
    fusions = [f for f in live.of_opcodes("fusion") if f.called[0].root.opcode == "exponential"]
    assert moved == 2 * SIZE == sum(v.shape.byte_size for f in fusions for v in (f, *f.operands))
