"""What a model must be before anything else reads it: text that is text, sizes that are sizes.

Floor: onnx.  protobuf lets both pass, and onnx's inference ends the process on some sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlosharding.errors import LoadError


def check_wire(model: Any) -> None:
    """Raises LoadError for names that are no text; a size below zero is an open one, as exporters mean it."""
    from onnx import TensorProto

    tensor = TensorProto.DESCRIPTOR
    for message in _messages(model, tensor):
        # Of a tensor only what is small is asked for: its bytes would be copied.
        if message.DESCRIPTOR is tensor:
            _check_text("tensor", [message.name, *(t for e in message.external_data for t in (e.key, e.value))])
        elif message.DESCRIPTOR.name == "Dimension" and message.dim_value < 0:
            message.ClearField("dim_value")


def _messages(message: Any, tensor: Any) -> Iterator[Any]:
    """A message and all inside it, but for those inside tensors; each text is checked on the way."""
    yield message
    if message.DESCRIPTOR is tensor:
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            _check_text(field.name, value if field.is_repeated else [value])
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner, tensor)


def _check_text(what: str, texts: Any) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise LoadError(f"{what} {text[:40]!r} is no text", remedy="names are UTF-8")
