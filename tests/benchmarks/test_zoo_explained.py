"""Real programs explained: every chain ends at what a user wrote, and every conflict names two sides that differ."""

from __future__ import annotations

import jax
import pytest

import hlosharding as hs
from benchmarks.zoo import MODELS, Model

NAMES = (
    *("transformer, FSDP in a scan", "MoE, dense dispatch", "MoE, sorted dispatch", "U-Net", "FFT convolution"),
    *("LSTM in a scan", "nets in a conditional", "pipeline in a scan", "graph attention", "Gaussian process, points"),
    *("state space, time split", "accumulation in a scan, tensor"),
)


def propagated(model: Model) -> hs.Propagation:
    mesh = model.mesh()
    program = model.build(mesh, 1)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
    module = hs.trace(program.function, mesh=mesh, **dict(program.options))(*arguments)
    return hs.propagate(module)


@pytest.mark.parametrize("model", [m for m in MODELS if m.name in NAMES], ids=lambda model: model.name)
def test_every_value_has_an_answer(model: Model) -> None:
    found = propagated(model)
    for name, sharding in found.shardings.items():
        why = found.explain(name)
        assert why.links[0].sharding == sharding
        if sharding is not None and any(leaf.num_tiles > 1 for leaf in sharding.leaves):
            last = why.links[-1]
            assert last.is_given, name
            assert last.location, name  # a line, an argument's path, or the program's result
        else:
            assert why.stopped or why.lost, name
    for inst in found.module.instructions:
        if inst.shape.is_tuple and inst.shape.leaves:
            assert all(str(found.explain(f"{inst.name}{{{n}}}")) for n in range(len(inst.shape.leaves)))
    for lost in found.conflicts:
        assert {lost.offered_since.is_given, lost.held_since.is_given} == {True}
        assert lost.offered != lost.winner.sharding
        assert lost.reason
