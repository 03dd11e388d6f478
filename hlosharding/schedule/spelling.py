"""How the built-in ops stand in a schedule's text: a word, and an attribute for each field.

Floor: schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hlosharding.errors import ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule.local_ops import Add, Concat, Split
from hlosharding.schedule.op import BuiltIn, Op
from hlosharding.schedule.sources import Constant, Number
from hlosharding.schedule.transfers import Send, SubmeshAllGather, SubmeshAllReduce, SubmeshReduce, SubmeshReduceScatter
from hlosharding.schedule.value_type import devices_text, parse_devices
from hlosharding.sharding import HloSharding

_KINDS: Sequence[type[BuiltIn]] = (
    Add, SubmeshAllGather, SubmeshAllReduce, Concat, Constant, Number, SubmeshReduce, SubmeshReduceScatter, Send, Split,
)  # fmt: skip
BUILT_IN: Mapping[str, type[BuiltIn]] = {kind.word: kind for kind in _KINDS}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "str": str,
    "tuple[int, ...]": parse_devices,
    "HloSharding | None": HloSharding.parse,
    "Shape": Shape.parse,
}
"""By the annotation of the field."""
_ATTRIBUTE = re.compile(r"\s+(\w+)=(\{(?:[^{}]|\{[^{}]*\})*\}|[\w.+-]+(?:\[[\d,]*\])?)")


def attributes_text(op: Op) -> str:
    """The attributes of a built-in op.

    >>> attributes_text(Split(dim=0, parts=2, axis="micro")), attributes_text(Send(to=(1, 2)))
    (' dim=0 parts=2 axis=micro', ' to={1,2}')
    """
    if op.name not in BUILT_IN:
        return ""
    values = [(field.name, getattr(op, field.name)) for field in fields(op)]  # pyright: ignore[reportArgumentType]
    said = ((name, devices_text(value) if isinstance(value, tuple) else value) for name, value in values)
    return "".join(f" {name}={value}" for name, value in said if value is not None)


def parse_op(word: str, attributes: str) -> Op:
    """The op of a word and the text behind its operands.  Raises ScheduleError.

    >>> parse_op("concat", " dim=1")
    Concat(dim=1)
    """
    made = BUILT_IN.get(word)
    if made is None:
        raise ScheduleError(f"no op {word!r}", remedy=f"there are {', '.join(BUILT_IN)}, call @function and @program")
    kinds = {field.name: str(field.type) for field in fields(made)}  # pyright: ignore[reportArgumentType]
    given: dict[str, Any] = {}
    rest = attributes
    # An unknown name, or one for the second time, is an error: so there are no more turns than fields.
    while match := _ATTRIBUTE.match(rest):
        name, value = match.groups()
        if name not in kinds or name in given:
            raise ScheduleError(f"{word} has no attribute {name!r}", remedy=f"it has {', '.join(kinds) or 'none'}")
        given[name] = _parse_value(word, name, kinds[name], value)
        rest = rest[match.end() :]
    if rest.strip():
        raise ScheduleError(f"no attribute of {word}: {rest.strip()!r}", remedy="write them like dim=0")
    missing = [name for name, kind in kinds.items() if name not in given and not kind.endswith("None")]
    if missing:
        raise ScheduleError(f"{word} lacks {', '.join(f'{name}=' for name in missing)}")
    return made(**given)


def _parse_value(word: str, name: str, kind: str, text: str) -> Any:
    try:
        return _READERS[kind](text)
    except ValueError as error:
        raise ScheduleError(f"{name}={text} of {word}: {error}") from None
