"""Pipelines of passes that cost what is said, on a machine where moving costs nothing: what closed forms speak of."""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.cost import Link, Machine
from hlosharding.ir import Shape
from hlosharding.schedule import Piece, Pipeline, UserOp, ValueType

HANDED_ON, SAVED = Shape.array("u8", (1, 0)), Shape.array("u8", (1,))
"""No byte, and one."""


def machine(num_devices: int, latency: float = 0.0) -> Machine:
    link = Link(bandwidth=1e30, latency=latency)
    return Machine(
        name="ideal",
        num_devices=num_devices,
        devices_per_node=num_devices,
        peak_flops=(("f32", 1e30),),
        vector_flops=1e30,
        memory_bandwidth=1e30,
        memory_bytes=1e30,
        inside=link,
        between=link,
        launch=0.0,
        collective_launch=0.0,
    )


def _op(word: str, seconds: float, *, saves: bool = False) -> UserOp:
    def results(x: ValueType, *_: ValueType) -> list[ValueType]:
        return [x, ValueType(SAVED, x.devices)] if saves else [x]

    return UserOp(word, results, seconds=seconds)


def pipeline(
    p: int, microbatches: int, f: Sequence[float], b: Sequence[float], w: Sequence[float] = (), chunks: int = 1
) -> Pipeline:
    """Stages with passes of these seconds; `w`: the gradients of weights on their own.

    A forward pass saves one byte a microbatch for the stage's last pass; what stages hand on takes nothing.
    """
    last, pieces = p * chunks - 1, list[Piece]()
    for stage in range(last + 1):
        forward, backward = _op(f"f{stage}", f[stage], saves=True), _op(f"b{stage}", b[stage])
        pieces.append(Piece("forward", stage, forward, (f"x{stage}",), (f"x{stage + 1}", f"saved{stage}")))
        given = f"dx{stage + 1}" if stage < last else f"x{stage + 1}"
        pieces.append(Piece("backward", stage, backward, (given, f"saved{stage}"), (f"dx{stage}",)))
        if w:
            late = _op(f"w{stage}", w[stage])
            pieces.append(Piece("weights", stage, late, (f"dx{stage}", f"saved{stage}"), (f"dw{stage}",)))
    devices = [(n,) for n in range(p)] * chunks
    inputs = {"x0": ValueType(HANDED_ON.with_dims((microbatches, 0)), (0,))}
    return Pipeline(devices, pieces, inputs, batch={"x0": 0}, results=[(f"x{last + 1}", 0)])
