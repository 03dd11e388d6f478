"""What a plan file may say, key by key, read with errors that name file, line and key.

Floor: plans.  The file is a stranger's: nothing in it is run, every key and type is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast

from hlosharding.cost import parse_machine
from hlosharding.errors import HloShardingError, PlanError, is_count
from hlosharding.reshard import OBJECTIVES
from hlosharding.sharding import HloSharding, MeshInfo, check_devices, is_spec, spec_from_text
from hlosharding.small_files import parsed_json, parsed_toml, read_text

VERSION = 1
_LONGEST_SHOWN = 200
"""Letters of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSteps:
    """Into what a step is cut, as of `hs.pipelined`: `stages` of as many devices as the plan's mesh has; None is for
    those of the model itself, or one.

    >>> PipelineSteps(stages=2, microbatches=8).schedule
    ''
    """

    stages: int | None = None
    microbatches: int = 1
    schedule: str = ""
    order: str = ""
    """Of stages (P), data (D) and tensors (T) on the machine's devices, the outermost first."""
    even: bool = False
    """As many layers in each stage?"""
    layers: tuple[int, ...] = ()
    """Of parts that take equal time, or of layers, if `even`, how many each stage has; by default one."""


def read_fields(path: str | Path) -> dict[str, Any]:
    """The fields of the `PlanFile` in a TOML file, or in a JSON file with the same keys.  Raises PlanError."""
    text = read_text(path, PlanError)
    parsed = parsed_json if Path(path).suffix == ".json" else parsed_toml
    return _PlanReader(str(path), text).fields(parsed(str(path), text, PlanError))


def parse_fields(text: str, name: str = "the plan") -> dict[str, Any]:
    """The same of a TOML text; `name`: what messages call it."""
    return _PlanReader(name, text).fields(parsed_toml(name, text, PlanError))


class _Unlike(Exception):
    """What a key takes, of a value that is none such."""


class _PlanReader:
    """Checks what one file says."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    def fields(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a plan whose text says this."""
        said = self._table(given, _KEYS)
        if said.pop("version", VERSION) != VERSION:
            raise self._error("version", f"this reads version {VERSION} only", f"write version = {VERSION}")
        mesh, device_ids = said.pop("mesh", None), said.pop("device_ids", None)
        if mesh is None and device_ids is not None:
            raise self._error("device_ids", "there is no mesh whose devices these are", "write a table [mesh]")
        if mesh is not None:
            said["mesh"] = self._checked("device_ids" if device_ids else "mesh", partial(_mesh_of, mesh, device_ids))
        for name, sharding in said.get("annotations", ()):
            self._checked(f"annotations.{name}", partial(_check_sharding, sharding, said.get("mesh")))
        if "machine" in said:
            self._checked("machine", partial(parse_machine, said["machine"]))
        if "pipeline" in said:
            steps = said["pipeline"] = PipelineSteps(**self._table(said["pipeline"], _PIPELINE, "pipeline."))
            stage = said["mesh"].num_devices if "mesh" in said else 1
            self._checked("pipeline.stages", partial(check_devices, stage * (steps.stages or 1)))
        return said

    def _table(self, given: Mapping[str, Any], known: Mapping[str, Callable[[Any], Any]], at: str = "") -> Any:
        """Values by key, each read as `known` says."""
        found: dict[str, Any] = {}
        for key, value in given.items():
            if key not in known:
                near = get_close_matches(key, known, 1)
                remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise self._error(at + key, "no such key", remedy)
            try:
                found[key] = known[key](value)
            except _Unlike as wanted:
                raise self._error(at + key, f"it is {_shown(value)}", f"write {wanted}") from None
        return found

    def _checked(self, key: str, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except HloShardingError as error:
            what = f"{error.what}, at {error.where}" if error.where else error.what
            raise self._error(key, what, error.remedy) from None

    def _error(self, key: str, what: str, remedy: str | None = None) -> PlanError:
        """Names file, line and key."""
        last = re.escape((key.partition(".")[2] or key)[:_LONGEST_SHOWN])
        begins = re.compile(rf"""\s*(\[\s*|[{{,]\s*)?["']?{last}["']?\s*[\]=:.]""")
        # Not `splitlines`, for which form feeds and the like end lines, too.
        lines = self._text.split("\n")
        line = next((f":{number}" for number, text in enumerate(lines, 1) if begins.match(text)), "")
        return PlanError(f"{key[:_LONGEST_SHOWN]}: {what}", where=self._path + line, remedy=remedy)


def _mesh_of(axes: tuple[tuple[str, int], ...], device_ids: tuple[int, ...] | None) -> MeshInfo:
    return MeshInfo([name for name, _ in axes], [size for _, size in axes], device_ids)


def _check_sharding(text: str, mesh: MeshInfo | None) -> None:
    """Raises ShardingError for a text that is no sharding, or one over axes that the mesh has not."""
    if not is_spec(text):
        HloSharding.parse(text)
        return
    spec = spec_from_text(text)
    if mesh is not None:
        HloSharding.named(mesh, spec)


def _such(is_such: Callable[[Any], bool], wanted: str) -> Callable[[Any], Any]:
    """The value as it is."""

    def read(value: Any) -> Any:
        if not is_such(value):
            raise _Unlike(wanted)
        return value

    return read


def _is_count(value: Any) -> bool:
    return is_count(value) and value < 2**53


_text = _such(lambda value: isinstance(value, str), "a text")
_truth = _such(lambda value: isinstance(value, bool), "true or false")
_count = _such(_is_count, "a whole number from 1 on")
_objective = _such(lambda value: isinstance(value, str) and value in OBJECTIVES, f"one of {', '.join(OBJECTIVES)}")
_any_table = _such(lambda value: isinstance(value, dict), "a table with stages and microbatches")


def _list(element: Callable[[Any], Any], said: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _Unlike(said)
    return tuple(map(element, cast("list[Any]", value)))


def _pairs(element: Callable[[Any], Any], said: str, value: Any) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict):
        raise _Unlike(said)
    try:
        return tuple((key, element(each)) for key, each in cast("dict[str, Any]", value).items())
    except _Unlike:
        raise _Unlike(said) from None


def _device(value: Any) -> int:
    # From 0 on, where `_count` begins with 1; what is no number it refuses as it is.
    return _count(value + 1) - 1 if isinstance(value, int) and not isinstance(value, bool) else _count(value)


_ARGUMENTS = partial(_list, _text, "a list of arguments' paths")
_KEYS: Mapping[str, Callable[[Any], Any]] = {
    "version": _count,
    "comment": _text,
    "machine": _text,
    "objective": _objective,
    "strategy": _text,
    "sequence": _truth,
    "recompute": _truth,
    "batch": _ARGUMENTS,
    "donate": _ARGUMENTS,
    "device_ids": partial(_list, _device, "a list of device numbers"),
    "mesh": partial(_pairs, _count, "a table of axes, as data = 2"),
    "pipeline": _any_table,
    "annotations": partial(_pairs, _text, "a table of names and shardings, as x = \"P('data')\""),
}
_PIPELINE: Mapping[str, Callable[[Any], Any]] = {
    "stages": _count,
    "microbatches": _count,
    "schedule": _text,
    "order": _text,
    "even": _truth,
    "layers": partial(_list, _count, "a list of counts"),
}


def _shown(value: Any) -> str:
    """Of a stranger's value as much as a message takes; nested ones may be too deep to be written."""
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else repr(value)[:100]
