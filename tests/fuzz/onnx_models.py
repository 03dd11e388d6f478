"""ONNX models, changed field by field: they load, or are our own error.

What is changed stays a message of protobuf's, so that most of it gets past the parser; some bytes are cut and flipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import numpy as np

import hlosharding as hs
from tests.support.onnx_cases import Case, node_cases, node_modules
from tests.support.onnx_models import mlp, model, node, port

_SMALL = 2000
"""Elements of all inputs of a seed."""
_INTEGERS = (0, 1, -1, 2, 3, 7, 8, 64, 255, -(2**31), 2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
_REALS = (0.0, -1.0, 0.5, 1e-9, 1e30, float("inf"), float("nan"))


def check(data: bytes) -> None:
    """Raises what is no error of ours."""
    with suppress(hs.HloShardingError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hs.load(data, format="onnx")


@cache
def seeds() -> list[bytes]:
    """Valid models: the smallest of ONNX's node tests for each operator, and what these leave out."""
    found = [case for module in node_modules() if (case := _smallest(module)) is not None]
    made = [mlp(), _with_function(), _with_annotations()]
    return [proto.SerializeToString() for proto in (*map(_with_weights, found), *made)]


def _smallest(module: str) -> Case | None:
    cases = [case for case in node_cases(module).values() if _size(case) <= _SMALL]
    return min(cases, key=_size, default=None)


def _size(case: Case) -> int:
    return sum(np.size(array) for array in case.inputs.values() if isinstance(array, np.ndarray))


def _with_weights(case: Case) -> Any:
    """Whole numbers stand in the model: they may decide shapes, and nobody gives them."""
    from onnx import ModelProto, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(case.model)
    for name, array in case.inputs.items():
        if isinstance(array, np.ndarray) and array.dtype.kind in "iub":
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def _with_function() -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("my", 1)]
    body = [node("Neg", ["a"], ["b"]), node("Mul", ["a", "b"], ["c"])]
    calls = [node("f", ["x"], ["h"], domain="my"), node("f", ["h"], ["y"], domain="my")]
    proto = model(calls, [port("x", [4])], [port("y", [4])])
    proto.functions.append(helper.make_function("my", "f", ["a"], ["c"], body, opsets))
    proto.opset_import.add(domain="my", version=1)
    return proto


def _with_annotations() -> Any:
    return hs.write_onnx_shardings(mlp(), {"h": "{devices=[2,1]<=[2]}", "w": "{devices=[1,2]<=[2]}"})


def mutated(data: bytes, random: Random) -> bytes:
    """Another model, or something that is none any more."""
    from onnx import ModelProto

    if random.random() < 0.1:
        return _damaged(data, random)
    proto = ModelProto.FromString(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        fields = list(_fields(proto))
        if not fields:
            break
        message, field = random.choice(fields)
        random.choice(_CHANGES)(message, field, random)
    return proto.SerializeToString()


def _damaged(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data))
    if random.random() < 0.5:
        return data[:place]
    return data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of a message that has a value, and of those inside it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _fields(inner)


def _removed(message: Any, field: Any, random: Random) -> None:
    if not field.is_repeated or random.random() < 0.2:
        message.ClearField(field.name)
    else:
        del getattr(message, field.name)[random.randrange(len(getattr(message, field.name)))]


def _doubled(message: Any, field: Any, random: Random) -> None:
    if field.is_repeated:
        values = getattr(message, field.name)
        values.append(random.choice(values))


def _replaced(message: Any, field: Any, random: Random) -> None:
    """By a value of another place of the same message, or by one that is often a limit."""
    if field.type == field.TYPE_MESSAGE:
        return
    value = _value(message, field, random)
    with suppress(ValueError):  # 32 bits are not enough, or text is none
        if field.is_repeated:
            values = getattr(message, field.name)
            values[random.randrange(len(values))] = value
        else:
            setattr(message, field.name, value)


def _value(message: Any, field: Any, random: Random) -> Any:
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return random.choice(_REALS)
    if field.type == field.TYPE_ENUM:
        return random.choice([value.number for value in field.enum_type.values])
    if field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
        return random.choice((random.randrange(30), random.choice(_INTEGERS)))
    near = [_text(each) for other, each in message.ListFields() if other.type == field.type for each in _each(each)]
    text = random.choice((*near, "", "x", "y", "../w", "\0", "Loop", "Add", "ai.onnx.ml"))
    return text if field.type == field.TYPE_STRING else text.encode(errors="replace")


def _each(values: Any) -> Iterator[Any]:
    yield from (values,) if isinstance(values, str | bytes) else values


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _added(message: Any, field: Any, random: Random) -> None:
    """A field that had no value."""
    del field
    chosen = random.choice(message.DESCRIPTOR.fields)
    if chosen.type == chosen.TYPE_MESSAGE:
        (getattr(message, chosen.name).add if chosen.is_repeated else getattr(message, chosen.name).SetInParent)()
        return
    with suppress(ValueError):
        value = _value(message, chosen, random)
        getattr(message, chosen.name).append(value) if chosen.is_repeated else setattr(message, chosen.name, value)


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (_removed, _doubled, _replaced, _replaced, _added)
