"""Programs of any size in three shapes, with annotations, each also as an ONNX model: what `growth` runs.

Deep: layers one behind the other.  Wide: arrays in and as many out.  Fan-out: one value that everything reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from examples import devices

SIZE = 16
_SHAPE = (SIZE, SIZE)
_ROWS, _COLUMNS = P("data"), P(None, "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """A function of so many instructions, and what is said of it.  Whatever its shape, it has `tanh`s by the number."""

    function: Callable[..., Any]
    inputs: int
    in_shardings: Any
    out_shardings: Any
    mesh: Mesh
    batch: Sequence[int]
    """Arguments whose first dim is the batch."""
    nodes: Sequence[tuple[str, Sequence[str], str]]
    """Of the ONNX model: operator, inputs, output; x0, x1 ... come in."""
    outputs: Sequence[str]
    """Of the ONNX model."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Shapes to call the function with."""
        return (jax.ShapeDtypeStruct(_SHAPE, jnp.float32),) * self.inputs

    def onnx(self) -> Any:
        """The model."""
        from onnx import TensorProto, helper

        def port(name: str) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE)

        nodes = [helper.make_node(op, list(inputs), [output], name=output) for op, inputs, output in self.nodes]
        ports = [port(f"x{n}") for n in range(self.inputs)], [port(name) for name in self.outputs]
        opset = [helper.make_opsetid("", 21)]
        return helper.make_model(helper.make_graph(nodes, "growing", *ports), opset_imports=opset, ir_version=11)


def deep(count: int) -> Growing:
    """Layers of two products and what stands between, as a transformer's: some all-reduce each."""
    layers = count // 4

    def function(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
        for _ in range(layers):
            x = jnp.tanh(x @ up) @ down + x
        return x

    nodes: list[tuple[str, Sequence[str], str]] = []
    before = "x0"
    for n in range(layers):
        nodes += [
            ("MatMul", (before, "x1"), f"up{n}"),
            ("Tanh", (f"up{n}",), f"tanh{n}"),
            ("MatMul", (f"tanh{n}", "x2"), f"down{n}"),
            ("Add", (f"down{n}", before), f"out{n}"),
        ]
        before = f"out{n}"
    return Growing(
        function=function, inputs=3, in_shardings=(_ROWS, _COLUMNS, P("model")), out_shardings=_ROWS,
        mesh=devices.data_by_model(), batch=(0,), nodes=nodes, outputs=(before,),
    )  # fmt: skip


def wide(count: int) -> Growing:
    """So many arrays, one op each, every fourth moved to other devices on its way out."""

    def function(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.tanh(x) for x in arrays)

    return Growing(
        function=function, inputs=count, in_shardings=(_ROWS,) * count,
        out_shardings=tuple(_ROWS if n % 4 else _COLUMNS for n in range(count)),
        mesh=devices.data_by_model(), batch=range(count),
        nodes=[("Tanh", (f"x{n}",), f"tanh{n}") for n in range(count)], outputs=[f"tanh{n}" for n in range(count)],
    )  # fmt: skip


def fan_out(count: int) -> Growing:
    """One value that half of all ops read."""
    readers = count // 2

    def function(x: jax.Array, weight: jax.Array) -> jax.Array:
        read = jnp.sin(weight)
        for _ in range(readers):
            x = jnp.tanh(x @ read)
        return x

    nodes: list[tuple[str, Sequence[str], str]] = [("Sin", ("x1",), "read")]
    before = "x0"
    for n in range(readers):
        nodes += [("MatMul", (before, "read"), f"product{n}"), ("Tanh", (f"product{n}",), f"tanh{n}")]
        before = f"tanh{n}"
    return Growing(
        function=function, inputs=2, in_shardings=(_ROWS, _COLUMNS), out_shardings=_ROWS,
        mesh=devices.data_by_model(), batch=(0,), nodes=nodes, outputs=(before,),
    )  # fmt: skip


SHAPES: dict[str, Callable[[int], Growing]] = {"deep": deep, "wide": wide, "fan-out": fan_out}
"""By name, what makes a program of about so many instructions."""
