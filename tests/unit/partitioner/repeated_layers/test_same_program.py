"""A deep program is the same whether its layers are decided once or one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlosharding as hs
from benchmarks.deep_models import ARCHITECTURES
from benchmarks.graphs import Graph
from benchmarks.published import transformer
from hlosharding import wire
from hlosharding.compiler import alternatives
from hlosharding.ir import Module
from hlosharding.partitioner import folded
from tests.support import deep_programs as deep
from tests.support.program_check import one_device, run_local

DEPTH = 24


def described(module: Module) -> list[Any]:
    """All that a program is, but for the names of instructions and the numbers of channels."""
    number = {inst: n for n, inst in enumerate(module.instructions)}
    channels: dict[int, int] = {}
    found = list[Any]()
    for inst in module.instructions:
        proto = wire.HloInstructionProto()
        proto.CopyFrom(inst.proto)
        for name in ("name", "id", "operand_ids", "called_computation_ids"):
            proto.ClearField(name)
        if proto.channel_id:
            proto.channel_id = channels.setdefault(proto.channel_id, len(channels) + 1)
        called = [module.computations.index(c) for c in inst.called]
        graph = [number[o] for o in inst.operands], [number[u] for u in inst.users], called
        found.append((inst.opcode, inst.shape, graph, inst.frames, module.sharding(inst), proto.SerializeToString()))
    return found


def same(propagated: hs.Propagation, monkeypatch: pytest.MonkeyPatch) -> hs.Partitioned:
    """The program, layers decided once; it is what it is when they are decided one by one."""
    found = hs.partition(propagated)
    monkeypatch.setattr(alternatives, "folded", lambda *_: None)
    other = hs.partition(propagated)
    monkeypatch.undo()
    assert described(found.module) == described(other.module)
    assert found.sharding_overrides == other.sharding_overrides
    assert found.warnings == other.warnings
    assert found.local.table == other.local.table
    return found


def left_out(propagated: hs.Propagation) -> float:
    """The share of the instructions that is not decided."""
    part = folded(propagated.module, frozenset(propagated.annotated))
    whole = len(propagated.module.entry.instructions)
    return 0.0 if part is None else 1 - len(part.module.entry.instructions) / whole


@pytest.mark.parametrize(
    ("architecture", "layers", "share"),
    [
        ("GPT-2", 10, 0.55),
        ("GPT-2", 12, 0.6),
        ("experts", 12, 0.6),
        ("GPT-2", 24, 0.75),
        ("encoder-decoder", 40, 0.6),
        ("experts", 24, 0.8),
    ],
)
def test_models_that_people_train(
    architecture: str, layers: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    propagated = Graph.of(ARCHITECTURES[architecture](layers)).propagate()
    assert left_out(propagated) > share
    same(propagated, monkeypatch)


def test_weights_that_stand_layers_ahead_of_what_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(transformer.LLAMA_8B, layers=20, width=64, heads=8, vocabulary=64, length=16, hidden=96)
    arguments = transformer.arguments(replace(config, scanned=False), 8)
    module = hs.trace(partial(transformer.train_step, replace(config, scanned=False)))(*arguments)
    rows = hs.HloSharding.parse("{devices=[8,1]<=[8]}")
    propagated = hs.propagate(hs.annotate(module, {"tokens": rows}))
    assert left_out(propagated) > 0.4
    same(propagated, monkeypatch)


def test_few_layers_of_each_kind_are_decided_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    propagated = Graph.of(ARCHITECTURES["ResNet"](48)).propagate()
    assert left_out(propagated) == 0
    same(propagated, monkeypatch)


def listed(make: Callable[[int], Any]) -> list[Any]:
    return [make(n) for n in range(DEPTH)]


def named(make: Callable[[int], Any]) -> dict[str, Any]:
    """JAX sorts names: layer 10 comes behind layer 1."""
    return {f"h_{n}": make(n) for n in range(DEPTH)}


ROWS = np.ones((deep.BATCH, deep.WIDTH), np.float32)
SEQUENCES = np.ones((deep.BATCH, deep.LENGTH, deep.WIDTH), np.float32)


@pytest.mark.parametrize("layers", [listed, named])
@pytest.mark.parametrize("kind", ["mlp", "transformer"])
def test_training_steps(layers: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, apply, x = {
        "mlp": (deep.mlp_layer, deep.mlp, ROWS),
        "transformer": (deep.attention_layer, deep.transformer, SEQUENCES),
    }[kind]
    module = deep.step(layers(make), lambda _key, own, y, say: apply(own, y, say), x)
    propagated = hs.propagate(module)
    assert left_out(propagated) > 0.4
    same(propagated, monkeypatch)


@pytest.mark.parametrize(
    ("result", "least"),
    [(lambda made: made[-1], 0.8), (lambda made: jnp.square(made[-1]).sum(), 0.8), (jnp.stack, 0.0)],
    ids=["of the last layer", "of the whole", "of all layers"],
)
def test_one_result_that_is_no_tuple(
    result: Callable[[list[Any]], Any], least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [deep.attention_layer(n) for n in range(32)]
    module = deep.forward(layers, lambda _key, own, y, say: deep.transformer(own, y, say), SEQUENCES, result)
    assert module.entry.root.opcode != "tuple"
    propagated = hs.propagate(module)
    # Who reads all layers would lack what is left out.
    assert left_out(propagated) > least if least else left_out(propagated) == 0
    same(propagated, monkeypatch)


def _whole(own: Any, y: jax.Array, say: deep.Say) -> jax.Array:
    return y + say(jnp.tanh(y @ own["up"]), None, None) @ own["down"] + own["bias"]


@pytest.mark.parametrize("where", [3, 16, 20, 28])
@pytest.mark.parametrize("what", ["activation", "annotation", "width"])
def test_one_layer_that_differs(where: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(key: int, own: Any, y: jax.Array, say: deep.Say) -> jax.Array:
        if key != where or what == "width":
            return deep.mlp(own, y, say)
        return _whole(own, y, say) if what == "annotation" else deep.mlp(own, y, say, jax.nn.relu)

    layers = [deep.mlp_layer(n, 64 if what == "width" and n == where else 32) for n in range(32)]
    propagated = hs.propagate(deep.step(layers, apply, ROWS))
    # In the middle it leaves a stack on either side.
    assert left_out(propagated) > 0.4
    same(propagated, monkeypatch)


def test_the_numbers_are_those_of_one_device() -> None:
    layers = named(deep.mlp_layer)
    module = deep.step(layers, lambda _key, own, y, say: deep.mlp(own, y, say), ROWS)
    local = hs.partition(hs.propagate(module))
    zeros = jax.tree.map(np.zeros_like, layers)
    arguments = [np.asarray(a) for a in jax.tree.leaves((layers, zeros, zeros, ROWS))]
    for got, want in zip(run_local(local, arguments), one_device(module, arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)  # sums come in another order
