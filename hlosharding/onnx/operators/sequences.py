"""Sequences and optionals: lists and None while a model is traced; no program holds any.

Floor: onnx.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_nodes
from hlosharding.onnx.operators.table import operator


@operator("SequenceEmpty", 11)
def _sequence_empty(*, dtype: int = 1) -> Any:
    del dtype
    return []


@operator("SequenceConstruct", 11, known="xs")
def _sequence_construct(*xs: Any) -> Any:
    return list(xs)


@operator("SequenceInsert", 11, static="position", known="sequence x")
def _sequence_insert(sequence: list[Any], x: Any, position: Any = None) -> Any:
    place = len(sequence) if position is None else int(position.reshape(()))
    place = place + len(sequence) if place < 0 else place
    return [*sequence[:place], x, *sequence[place:]]


@operator("SequenceAt", 11, static="position", known="sequence")
def _sequence_at(sequence: list[Any], position: Any) -> Any:
    return sequence[int(position.reshape(()))]


@operator("SequenceErase", 11, static="position", known="sequence")
def _sequence_erase(sequence: list[Any], position: Any = None) -> Any:
    place = range(len(sequence))[-1 if position is None else int(position.reshape(()))]
    return [*sequence[:place], *sequence[place + 1 :]]


@operator("SequenceLength", 11)
def _sequence_length(sequence: list[Any]) -> Any:
    return np.array(len(sequence), np.int64)


@operator("SplitToSequence", 24, static="split")
def _split_to_sequence(x: Any, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    size = x.shape[axis]
    if split is None:
        charge_nodes(size)
        parts = jnp.split(x, size, axis)
        return parts if keepdims else [jnp.squeeze(part, axis) for part in parts]
    each = int(split.reshape(())) if split.ndim == 0 else None
    cuts = range(each, size, each) if each is not None else np.cumsum(split)[:-1]
    charge_nodes(len(cuts))
    return list(jnp.split(x, [int(c) for c in cuts], axis))


@operator("ConcatFromSequence", 11)
def _concat_from_sequence(sequence: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    return jnp.stack(sequence, axis) if new_axis else jnp.concatenate(sequence, axis)


@operator("Optional", 28, known="x")
def _optional(x: Any = None, *, type: Any = None) -> Any:
    del type
    return x


@operator("OptionalHasElement", 28)
def _optional_has_element(x: Any = None) -> Any:
    return np.array(x is not None)


@operator("OptionalGetElement", 28, known="x")
def _optional_get_element(x: Any) -> Any:
    if x is None:
        raise LoadError("the optional holds nothing")
    return x
