"""The programs whose first call is timed: twelve held out, which nobody may profile, and those that one may look into.

A change is tuned on `TUNED`; `HELD_OUT` says whether it holds for programs that it was not made for.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import deep_models
from benchmarks.cases import Case
from benchmarks.first_call_programs import fields, sequences, transformers
from benchmarks.zoo import MODELS, Model

_SCALE = 4


def case_of(model: Model, scale: int = _SCALE) -> Case:
    """Its program at a scale, and the shapes to call it with."""
    mesh = model.mesh()
    return Case.of(model.name, model.build(mesh, scale), mesh)


def _gpt2(layers: int) -> tuple[str, Callable[[], Case]]:
    return f"GPT-2, {layers} layers", lambda: deep_models.gpt2(layers)


def _of_zoo(name: str) -> tuple[str, Callable[[], Case]]:
    return name, lambda: case_of(next(m for m in MODELS if m.name == name))


TUNED: dict[str, Callable[[], Case]] = dict([
    _gpt2(1),
    _gpt2(2),
    _gpt2(6),
    _gpt2(12),
    ("T5, 6 layers", lambda: deep_models.encoder_decoder(6)),
    ("ResNet-50", lambda: deep_models.residual(48)),
    _of_zoo("transformer, FSDP in a scan"),
    _of_zoo("U-Net"),
])  # fmt: skip
HELD_OUT: dict[str, Callable[[], Case]] = {
    model.name: (lambda model=model: case_of(model))
    for model in (*transformers.MODELS, *sequences.MODELS, *fields.MODELS)
}
"""Sizes are such that XLA compiles some seconds."""
