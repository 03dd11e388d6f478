"""ragged-dot, which XLA:CPU cannot compile: its rule against JAX's own expansion, mode by mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlosharding.ir import Instruction, Module
from hlosharding.rules import Nothing, Reduce, Signature, Whole, signature_of
from hlosharding.xla_bridge import hlo_text_to_proto
from tests.truth.pieces import cut, equal

MODES = {
    "free": (
        (8, 6), (3, 6, 4), "f32[8,4]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
        ((1,), (1,), (), ()), (0,), (0,),
    ),
    "contracted": (
        (6, 8), (8, 4), "f32[3,6,4]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
        ((1,), (0,), (), ()), (1,), (),
    ),
    "free with a batch": (
        (2, 8, 6), (3, 2, 6, 4), "f32[2,8,4]",
        "lhs_contracting_dims={2}, rhs_contracting_dims={2}, lhs_batch_dims={0}, rhs_batch_dims={1},"
        " lhs_ragged_dims={1}, rhs_group_dims={0}",
        ((2,), (2,), (0,), (1,)), (1,), (0,),
    ),
}  # fmt: skip


def instruction(name: str) -> Instruction:
    lhs, rhs, out, dims, *_ = MODES[name]
    sizes = [",".join(map(str, s)) for s in (lhs, rhs)]
    groups = f"s32[{'2,' if 'batch' in name else ''}3]"
    text = f"""HloModule m
ENTRY main {{
  a = f32[{sizes[0]}] parameter(0)
  b = f32[{sizes[1]}] parameter(1)
  g = {groups} parameter(2)
  ROOT r = {out} ragged-dot(a, b, g), {dims}
}}"""
    return Module.from_proto(hlo_text_to_proto(text)).entry.root


def run(name: str, arguments: list[np.ndarray]) -> np.ndarray:
    """JAX's ragged_dot_general, which it expands into masks and a dot on the CPU."""
    import jax
    import jax.numpy as jnp

    *_, dims, ragged, group = MODES[name]
    numbers = jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=((dims[0], dims[1]), (dims[2], dims[3])),
        lhs_ragged_dimensions=list(ragged),
        rhs_group_dimensions=list(group),
    )
    return np.asarray(jax.lax.ragged_dot_general(*map(jnp.asarray, arguments), ragged_dot_dimension_numbers=numbers))


@pytest.mark.parametrize("name", MODES)
def test_pieces_join_to_the_whole(name: str) -> None:
    inst = instruction(name)
    relation = signature_of(inst)
    assert isinstance(relation, Signature)
    rng = np.random.default_rng(3)
    groups: Any = np.array([3, 1, 4], np.int32)
    shapes = [o.shape.dims for o in inst.operands]
    arguments = [rng.normal(size=s).astype(np.float32) for s in shapes[:2]] + [np.broadcast_to(groups, shapes[2])]
    whole = run(name, arguments)
    assert whole.shape == inst.shape.dims
    sizes = [f.size for f in relation.factors]
    for number, factor in enumerate(relation.factors):
        parts = [
            [cut(a[None], d, sizes, number, p, 2)[0] for a, d in zip(arguments, relation.operands, strict=True)]
            for p in range(2)
        ]
        match factor.owes:
            case Nothing():
                outs = [run(name, part) for part in parts]
                want = [cut(whole[None], relation.results[0], sizes, number, p, 2)[0] for p in range(2)]
                assert all(equal([a], [b]) for a, b in zip(outs, want, strict=True)), factor
            case Reduce(kind="add"):
                assert equal([run(name, parts[0]) + run(name, parts[1])], [whole]), factor
            case _:
                assert factor.owes == Whole()
