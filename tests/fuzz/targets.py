"""The table of formats: each reader of text or bytes that strangers write, with what is valid there.

A new format is a row.  A reader that can write what it read checks that this comes round, too.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import hlosharding as hs
from hlosharding.cli.array_file import ArrayFile
from hlosharding.cli.parser import build_parser
from hlosharding.compiler.program_cache import ProgramCache
from hlosharding.cost import cost, machine_text, read_machine
from hlosharding.frontends.hlo.sharding_scanner import scan_hlo
from hlosharding.ir import Shape, unspecified_dims
from hlosharding.plans import Golden, PlanFile
from hlosharding.rules import parse_rule, parse_shardy_rule
from hlosharding.search import Plan
from hlosharding.search.price_file import KnownPrices
from hlosharding.sharding import FORMATS, FormatContext, HloSharding, Scanner, read_sdy_meshes, spec_from_text
from tests.fuzz import onnx_models, seeds
from tests.fuzz.target import Target

_MESH = "x=2,y=4"
_TO_FORMATS = tuple(f"-> {name}".encode() for name in FORMATS)


def _text(data: bytes) -> str:
    """Halves of letters included: a program's argument, or JSON, may have them."""
    return data.decode(errors="surrogateescape")


def _in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader that takes a path."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz")

    def of_bytes(data: bytes) -> object:
        path = Path(folder.name) / name
        path.write_bytes(data)
        return read(path)

    return of_bytes


def _sharding(data: bytes) -> None:
    found = HloSharding.parse(_text(data))
    assert HloSharding.parse(found.to_string(metadata=True)) == found
    HloSharding.from_proto(found.to_proto())


def _conversion(data: bytes) -> None:
    text, _, target = _text(data).rpartition("->")
    hs.convert(text, target.strip(), mesh=_MESH)


def _schedule(data: bytes) -> None:
    found = hs.parse_schedule(_text(data))
    assert str(hs.parse_schedule(found.to_text())) == str(found)


def _plan(data: bytes) -> None:
    _comes_round(PlanFile.parse(_text(data)))


def _comes_round(plan: PlanFile) -> None:
    assert PlanFile.parse(plan.to_text()) == plan


def _plan_text(data: bytes) -> None:
    found = Plan.parse(_text(data))
    assert Plan.parse(str(found)) == found


def _machine(path: Path) -> None:
    machine = read_machine(path)
    text = machine_text(machine)
    path.write_text(text)
    assert machine_text(read_machine(path)) == text
    if machine.num_devices >= 8:
        assert 0 <= cost(seeds.partitioned().module, machine=machine).time_s < float("inf")


def _arrays(path: Path) -> None:
    ArrayFile(str(path)).read_all()


def _array(data: bytes) -> None:
    """One member of an archive with a right checksum."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("x.npy", data)
    _ARCHIVE(packed.getvalue())


_ARCHIVE = _in_file("x.npz", _arrays)


def _cached(path: Path) -> None:
    """What the warm start makes of an entry that somebody signed: a program, or nothing."""
    path.write_bytes(seeds.signed(path.read_bytes()))
    entry = ProgramCache(path.parent).read(path.name)
    if entry is not None:
        entry.program(seeds.source())
        entry.executable(seeds.signature())


def _annotations(data: bytes) -> None:
    name, _, sharding = _text(data).rpartition("=>")
    hs.annotate(seeds.source(), {name: sharding}, mesh=FormatContext.of(_MESH).mesh)


_PARSER = build_parser()


def _arguments(data: bytes) -> None:
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        _PARSER.parse_args(_text(data).split("\n"))


TARGETS: Mapping[str, Target] = {
    "sharding": Target(_sharding, seeds.SHARDINGS, seeds.SHARDING_WORDS),
    "conversion": Target(_conversion, seeds.CONVERSIONS, (*seeds.SHARDING_WORDS, *_TO_FORMATS)),
    "mesh": Target(lambda data: FormatContext.of(_text(data)), seeds.MESHES),
    "spec": Target(lambda data: spec_from_text(_text(data)), seeds.SPECS),
    "shape": Target(lambda data: Shape.parse(_text(data)), seeds.SHAPES),
    "sdy-meshes": Target(lambda data: read_sdy_meshes(Scanner(_text(data))), seeds.SDY_MESHES),
    "open-dims": Target(lambda data: unspecified_dims(_text(data)), seeds.OPEN_DIMS),
    "rule": Target(lambda data: parse_rule(_text(data)), seeds.RULES),
    "shardy-rule": Target(lambda data: parse_shardy_rule(_text(data)), seeds.SHARDY_RULES),
    "hlo-shardings": Target(lambda data: scan_hlo(_text(data)), seeds.HLO, seeds.SHARDING_WORDS),
    "schedule": Target(_schedule, seeds.SCHEDULES, seeds.SCHEDULE_WORDS),
    "plan-toml": Target(_plan, seeds.PLANS, seeds.TOML_WORDS),
    "plan-json": Target(_in_file("x.json", lambda path: _comes_round(PlanFile.read(path))), seeds.JSON_PLANS),
    "plan-text": Target(_plan_text, seeds.PLAN_TEXTS, seeds.PLAN_WORDS),
    "golden": Target(_in_file("x.toml", Golden.read), seeds.GOLDENS, seeds.TOML_WORDS),
    "machine": Target(_in_file("x.toml", _machine), seeds.MACHINES, seeds.TOML_WORDS),
    "prices": Target(_in_file("x.jsonl", lambda path: KnownPrices(path, seeds.FACTS)), seeds.PRICES),
    "npz": Target(_ARCHIVE, seeds.ARCHIVES),
    "npy": Target(_array, seeds.ARRAYS),
    "cache": Target(_in_file("k", _cached), seeds.CACHE_ENTRIES),
    "annotations": Target(_annotations, seeds.ANNOTATIONS),
    "arguments": Target(_arguments, seeds.ARGUMENTS),
    "hlo": Target(lambda data: hs.load(_text(data), format="hlo"), seeds.HLO_MODULES, seeds.SHARDING_WORDS),
    "hlo-proto": Target(lambda data: hs.load(data, format="hlo-proto"), seeds.protos),
    "stablehlo": Target(lambda data: hs.load(_text(data), format="stablehlo"), seeds.stablehlo, seeds.SHARDING_WORDS),
    "onnx": Target(onnx_models.check, onnx_models.seeds, change=onnx_models.mutated),
}  # fmt: skip
