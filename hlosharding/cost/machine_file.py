"""A machine that a user writes in a TOML file: a preset with what is other, or every figure.

Floor: cost.  The file is a stranger's: every key and type is checked, and an error names the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, cast

from hlosharding.cost.machine import Link, Machine
from hlosharding.cost.presets import machine_named
from hlosharding.errors import CostError

_FIELDS = {field.name: field for field in fields(Machine) if field.init and field.name != "chip"}
_LINK = ("bandwidth", "latency")


def read_machine(path: str | Path) -> Machine:
    """The machine of a TOML file; keys are the fields of `Machine`, in bytes, FLOP/s and seconds.

    `like` names a preset from which everything comes that the file does not say; links are tables of `bandwidth` and
    `latency`, `peak_flops` a table by element type.  Raises CostError for what is no machine.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = 'like = "h100"\\nnum_devices = 16\\n[between]\\nbandwidth = 12.5e9\\nlatency = 5e-6'
    ...     path = Path(folder) / "ours.toml"
    ...     _ = path.write_text(text)
    ...     machine = read_machine(path)
    >>> machine.name, machine.memory_bytes, machine.between.bandwidth
    ('ours', 80000000000.0, 12500000000.0)
    """
    where = Path(path)
    try:
        given = tomllib.loads(where.read_text())
    except (OSError, ValueError) as error:
        raise CostError(f"cannot read {path}: {error}") from None
    like, count = given.pop("like", None), given.get("num_devices")
    values = {"name": where.stem} | {name: _value(name, value) for name, value in given.items()}
    if like is None:
        return _complete(values, str(path))
    if not isinstance(like, str) or not isinstance(count, int) or count < 1:
        raise CostError(
            f"{path}: like is {like!r}, num_devices {count!r}", remedy='write like = "h100", num_devices = 16'
        )
    return replace(machine_named(like, count), **cast("dict[str, Any]", values))


def _complete(values: dict[str, Any], path: str) -> Machine:
    missing = [name for name, field in _FIELDS.items() if field.default is MISSING and name not in values]
    if missing:
        raise CostError(
            f"{path} lacks {', '.join(missing)}", remedy='say them, or a preset that is like it: like = "h100"'
        )
    return Machine(**values)


def _value(name: str, value: Any) -> Any:
    """A field's value from what TOML has of it."""
    field = _FIELDS.get(name)
    if field is None:
        raise CostError(f"a machine has no {name!r}", remedy=f"it has {', '.join(_FIELDS)}")
    reader = _READERS.get(str(field.type), _number)
    return reader(name, value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CostError(f"{name} = {value!r} is no number")
    return value


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CostError(f"{name} = {value!r} is no whole number")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise CostError(f"{name} = {value!r} is no text")
    return value


def _counts(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise CostError(f"{name} = {value!r} is no list of whole numbers")
    return tuple(_count(name, each) for each in cast("list[Any]", value))


def _link(name: str, value: Any) -> Link:
    if not isinstance(value, Mapping) or sorted(cast("Mapping[str, Any]", value)) != sorted(_LINK):
        raise CostError(f"{name} is a table with {' and '.join(_LINK)}", where=f"{name} = {value!r}")
    return Link(
        **{key: float(_number(f"{name}.{key}", each)) for key, each in cast("Mapping[str, Any]", value).items()}
    )


def _rates(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, Mapping):
        raise CostError(f"{name} is a table of rates by element type, as f32 = 67e12")
    return tuple((key, float(_number(f"{name}.{key}", each))) for key, each in cast("Mapping[str, Any]", value).items())


_READERS = {
    "str": _text,
    "Topology": _text,
    "int": _count,
    "tuple[int, ...]": _counts,
    "tuple[int, int, int]": _counts,
    "Link": _link,
    "tuple[tuple[str, float], ...]": _rates,
}
"""By the annotation of the field; all others are numbers."""
