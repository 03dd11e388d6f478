"""A machine as text: in a few letters, `h100:16` or `ours.toml`, as a command line and a plan file say it;
as a TOML file, which a user or `calibrate` writes: a preset with what is other, or every figure.

Floor: cost.  The file is a stranger's: every key and type is checked, and an error names the key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hlosharding.cost.machine import Link, Machine, Nccl
from hlosharding.cost.presets import machine_named, machine_presets
from hlosharding.errors import CostError
from hlosharding.small_files import parsed_toml, read_text

_NOT_SAID = ("chip", "placement", "parts", "job")
_FIELDS = {field.name: field for field in fields(Machine) if field.init and field.name not in _NOT_SAID}
_OF_WHOLE = ("name", "between")
"""What a file says of a machine with parts; all else it says of each part."""
VERSION = 1
"""Of the file; what reads it takes files without one, which people write, as of the same."""


def parse_machine(text: str) -> tuple[str, int | None]:
    """A machine as a command line or a plan file says it: a preset and how many devices (None: as many as are needed),
    or the name of a TOML file.  Raises CostError.

    >>> parse_machine("h100:16"), parse_machine("h100"), parse_machine("ours.toml")
    (('h100', 16), ('h100', None), ('ours.toml', None))
    """
    if text.endswith(".toml"):
        return text, None
    name, colon, count = text.partition(":")
    # A stranger's text: Python refuses to read more than 4,300 digits, and nine are more than any machine needs.
    if colon and not (len(count) < 10 and count.isdecimal() and int(count)):
        raise CostError(f"{text!r} is no machine", remedy="write a preset and a number of devices, as h100:16")
    if name not in machine_presets():
        raise CostError(f"no machine {name!r}", remedy=f"there are {', '.join(machine_presets())}")
    return name, int(count) if colon else None


def machine_for(said: tuple[str, int | None], count: int) -> Machine:
    """The machine that `parse_machine` read, for a program on `count` devices.  Raises CostError for one with fewer.

    >>> machine_for(("h100", None), 16).num_devices
    16
    """
    name, devices = said
    if name.endswith(".toml"):
        return read_machine(name)
    if devices is not None and devices < count:
        raise CostError(
            f"machine {name}:{devices} has {devices} devices, {count} are needed",
            remedy=f"write {name}:{count}, or {name} alone",
        )
    return machine_named(name, devices or count)


def preset_text(machine: Machine) -> str | None:
    """A machine as `parse_machine` reads it; None for one that is no preset.

    >>> from hlosharding.cost import machines
    >>> preset_text(machines.h100(16))
    'h100:16'
    """
    name = machine.name.partition("(")[0]
    made = machine_presets().get(name)
    return f"{name}:{machine.num_devices}" if made is not None and made(machine.num_devices) == machine else None


def read_machine(path: str | Path) -> Machine:
    """The machine of a TOML file; keys are the fields of `Machine`, in bytes, FLOP/s and seconds.

    `like` names a preset from which everything comes that the file does not say; links are tables of `bandwidth` and
    `latency`, `nccl` one of what NCCL reaches, `peak_flops` one by element type; `version` and `measured_on` are there
    where `calibrate` wrote it.  Where nodes are unlike, each of `parts` is a table with these keys, beside them stands
    `between`, their links.
    Raises CostError for what is no machine.

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
    given = parsed_toml(str(path), read_text(path, CostError), CostError)
    _check_origin(given.pop("version", VERSION), given.pop("measured_on", {}), str(path))
    if "parts" in given:
        return _of_parts(given.pop("parts"), {"name": where.stem} | given, str(path))
    return _equal_devices({"name": where.stem} | given, str(path))


def _equal_devices(given: Mapping[str, Any], where: str, prefix: str = "") -> Machine:
    """`prefix`: what stands before its keys in messages."""
    values = {name: _value(prefix + name, value) for name, value in given.items() if name != "like"}
    like, count = given.get("like"), given.get("num_devices")
    if like is None:
        return _complete(values, where)
    if not isinstance(like, str) or not isinstance(count, int) or count < 1:
        raise CostError(
            f"{where}: like is {like!r}, num_devices {count!r}", remedy='write like = "h100", num_devices = 16'
        )
    return replace(machine_named(like, count), **values)


def _of_parts(tables: Any, given: Mapping[str, Any], path: str) -> Machine:
    others = [name for name in given if name not in _OF_WHOLE]
    if others:
        raise CostError(f"{path} says {', '.join(others)} beside parts", remedy="say it of each part")
    if not isinstance(tables, list) or not all(isinstance(each, Mapping) for each in cast("list[Any]", tables)):
        raise CostError(f"{path}: parts is {tables!r}, no list of tables", remedy="write [[parts]] above each")
    parts = [
        _equal_devices(each, f"{path}: parts[{number}]", f"parts[{number}].")
        for number, each in enumerate(cast("list[Mapping[str, Any]]", tables))
    ]
    return Machine.of_parts(*parts, **{name: _value(name, value) for name, value in given.items()})


def machine_text(machine: Machine, *, measured_on: Mapping[str, str | int] | None = None) -> str:
    """A file with every figure of a machine but its chip, for `read_machine`; `measured_on`: what they are of.

    >>> from hlosharding.cost import machines
    >>> print(machine_text(machines.h100(16), measured_on={"device_kind": "NVIDIA H100"}))
    version = 1
    name = "h100(16)"
    num_devices = 16
    ...
    [measured_on]
    device_kind = "NVIDIA H100"
    <BLANKLINE>
    """
    own = {name: getattr(machine, name) for name in (_OF_WHOLE if machine.parts else _FIELDS)}
    lines = [f"version = {VERSION}", *_lines(own | {"measured_on": tuple((measured_on or {}).items())})]
    for part in machine.parts:
        lines += ["", "[[parts]]", *_lines({name: getattr(part, name) for name in _FIELDS}, "parts.")]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Of a table: what has one line, then the tables in it."""
    tables = {name: _table(value) for name, value in values.items() if _table(value)}
    yield from (
        f"{name} = {_toml(value)}" for name, value in values.items() if name not in tables and value not in ((), None)
    )
    # Last: in TOML every key behind a table's head is that table's.
    for name, table in tables.items():
        yield from ("", f"[{prefix}{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items()))


def _table(value: Any) -> dict[str, Any]:
    """Of a figure that has parts."""
    if isinstance(value, Link | Nccl):
        return asdict(value)
    parts = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else ()
    return dict(parts) if parts and isinstance(parts[0], tuple) else {}


def _toml(value: Any) -> str:
    # JSON's strings, numbers and lists are TOML's, too; Python writes no float without a point or an exponent.
    return json.dumps(value)


def _check_origin(version: Any, measured_on: Any, path: str) -> None:
    if version != VERSION:
        raise CostError(f"{path} is of version {version!r}, this reads {VERSION}", remedy="calibrate anew")
    if not isinstance(measured_on, Mapping):
        raise CostError(f"{path}: measured_on is {measured_on!r}, no table")


def _complete(values: dict[str, Any], path: str) -> Machine:
    missing = [name for name, field in _FIELDS.items() if field.default is MISSING and name not in values]
    if missing:
        raise CostError(
            f"{path} lacks {', '.join(missing)}", remedy='say them, or a preset that is like it: like = "h100"'
        )
    return Machine(**values)


def _value(name: str, value: Any) -> Any:
    """A field's value from what TOML has of it; `name` may say of which part."""
    field = _FIELDS.get(name.rpartition(".")[2])
    if field is None:
        raise CostError(f"a machine has no {name!r}", remedy=f"it has {', '.join(_FIELDS)}")
    reader = _READERS.get(str(field.type), _number)
    return reader(name, value)


def _tile(name: str, value: Any) -> tuple[int, ...]:
    found = _counts(name, value)
    if len(found) != 3:
        raise CostError(f"{name} = {value!r} is not rows, columns and depth")
    return found


def _scalar(noun: str, kinds: tuple[type, ...], name: str, value: Any) -> Any:
    # To Python true is a whole number, too.
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise CostError(f"{name} = {value!r} is no {noun}")
    return value


_number = partial(_scalar, "number", (int, float))
_count = partial(_scalar, "whole number", (int,))
_text = partial(_scalar, "text", (str,))


def _list(noun: str, read: Callable[[str, Any], Any], name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise CostError(f"{name} = {value!r} is no list of {noun}")
    return tuple(read(name, each) for each in cast("list[Any]", value))


_texts = partial(_list, "texts", _text)
_counts = partial(_list, "whole numbers", _count)


def _figures_of(kind: type[Link | Nccl], name: str, value: Any) -> Any:
    """A table that has each figure of a kind."""
    keys = [field.name for field in fields(kind)]
    if not isinstance(value, Mapping) or sorted(cast("Mapping[str, Any]", value)) != sorted(keys):
        *most, last = keys
        lacks = "".join(f", it lacks {key}" for key in keys if isinstance(value, Mapping) and key not in value)
        raise CostError(f"{name} is a table with {', '.join(most)} and {last}{lacks}", where=f"{name} = {value!r}")
    return kind(**dict(_rates(name, value)))


def _rates(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, Mapping):
        raise CostError(f"{name} is a table of numbers, as f32 = 67e12 in peak_flops")
    return tuple((key, float(_number(f"{name}.{key}", each))) for key, each in cast("Mapping[str, Any]", value).items())


_READERS = {
    "str": _text,
    "Topology": _text,
    "Runtime": _text,
    "int": _count,
    "tuple[Overlap, ...]": _texts,
    "tuple[int, ...]": _counts,
    "tuple[int, int, int]": _tile,
    "Link": partial(_figures_of, Link),
    "Nccl | None": partial(_figures_of, Nccl),
    "tuple[tuple[str, float], ...]": _rates,
}
"""By the annotation of the field; all others are numbers."""
