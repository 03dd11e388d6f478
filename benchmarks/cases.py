"""The programs that are measured: the three examples, and the GPT-2-style model at other depths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import Mesh

import hlosharding as hs
from benchmarks import live_xla
from examples import devices
from examples.models import conv_net, gpt2, nnx_classifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A function, shapes to call it with, and what `jax.jit` is told of it."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    mesh: Mesh
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, program: Any, mesh: Mesh) -> Case:
        """A program of the zoo's kind; shapes stand for its arrays."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), program.arguments)
        return cls(name=name, function=program.function, arguments=shapes, mesh=mesh, options=program.options)

    def lowered(self) -> jax.stages.Lowered:
        """For live GSPMD."""
        return live_xla.lower(self.function, self.arguments, **self.options)

    def traced(self) -> Any:
        """Our first stage."""
        return hs.jit(self.function, mesh=self.mesh, **self.options).trace(*self.arguments)

    @property
    def free_parameters(self) -> list[bool]:
        """For each flat argument: may propagation choose its sharding?  As `jax.jit` decides it."""
        return [getattr(leaf, "sharding", None) is None for leaf in jax.tree.leaves(self.arguments)]

    @property
    def free_outputs(self) -> list[bool]:
        """For each flat output: may propagation choose its sharding?"""
        outputs = jax.eval_shape(self.function, *self.arguments)
        asked = self.options.get("out_shardings")
        if asked is None:
            return [True] * len(jax.tree.leaves(outputs))
        return [leaf is None for leaf in jax.tree.leaves(asked, is_leaf=lambda leaf: leaf is None)]


def gpt2_case(**sizes: int) -> Case:
    """The GPT-2-style training step; `sizes` are fields of `gpt2.Config`."""
    config, mesh = gpt2.Config(**sizes), devices.data_by_model()
    return Case(
        name=f"GPT-2, {config.layers} layers",
        function=gpt2.training_step(mesh),
        arguments=gpt2.abstract_arguments(config),
        mesh=mesh,
    )


def conv_net_case() -> Case:
    """The convolutional net's training step."""
    mesh = devices.data_by_model()
    arguments = conv_net.abstract_arguments(conv_net.Config())
    return Case(name="convolutional net", function=conv_net.training_step(mesh), arguments=arguments, mesh=mesh)


def flax_case() -> Case:
    """The Flax NNX and Optax training step."""
    config, mesh = nnx_classifier.Config(), devices.data_by_model()
    static, state = nnx_classifier.build(config, mesh)
    return Case(
        name="Flax NNX + Optax",
        function=nnx_classifier.training_step(static),
        arguments=nnx_classifier.abstract_arguments(config, mesh),
        mesh=mesh,
        options=nnx_classifier.jit_options(state, mesh),
    )


def example_cases() -> tuple[Case, ...]:
    """All three examples, as they run."""
    return gpt2_case(), conv_net_case(), flax_case()
