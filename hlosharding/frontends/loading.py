"""One door for every format: a path, text, bytes, or a JAX lowering becomes a Module.

Floor: frontends.  Decides which reader is meant; the readers do the work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from hlosharding.collector import collector_waits
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import LoadError, ModuleError
from hlosharding.frontends.hlo import MLIR_BYTECODE, from_hlo_proto, from_hlo_text, from_lowering, from_stablehlo
from hlosharding.frontends.jax import from_compiled, from_lowered
from hlosharding.frontends.prepare import prepare as prepare_module
from hlosharding.frontends.prepare import prepare_edit
from hlosharding.frontends.shardy import has_shardy_marks
from hlosharding.ir import Edit, Module, verify
from hlosharding.printable import is_writable
from hlosharding.registry import Registry
from hlosharding.sharding import MOST_DEVICES
from hlosharding.whole_files import read_whole

ProgramFormat = Literal["hlo", "hlo-proto", "stablehlo", "onnx"]
_NO_FILE = "a string without a newline is taken as a path: give program text with its line breaks"
_SKIPPED = re.compile(r"(?:\s|//[^\n]*)*+")
"""Empty lines and comments at the top of a text."""
_MLIR_STARTS = ("module", "func.func", "sdy.mesh", "!", "#", '"')
"""MLIR text begins with a module, a function or a mesh; with aliases of types, locations or attributes; or with an op
in quotes."""
_SUFFIXES: dict[str, ProgramFormat] = {
    ".hlo": "hlo",
    ".txt": "hlo",
    ".pb": "hlo-proto",
    ".mlir": "stablehlo",
    ".mlirbc": "stablehlo",
    ".stablehlo": "stablehlo",
    ".onnx": "onnx",
}


@dataclass(frozen=True, slots=True)
class ProgramReader:
    """How a room of its own tells and reads a format that is no HLO."""

    is_one: Callable[[Any], bool]
    read: Callable[..., Module]
    """Called with what `load` is: the content, `inputs`, `path`, `prepare` and `configuration`."""


READERS: Registry[str, ProgramReader] = Registry("the readers of other formats", plugins=("hlosharding.onnx:READERS",))
"""By format."""


@deep_stack
@collector_waits
def load(
    source: Any,
    *,
    format: ProgramFormat | None = None,
    prepare: bool | None = None,
    inputs: Mapping[str, Any] | None = None,
    configuration: str | None = None,
    custom_calls: Collection[str] = (),
) -> Module:
    """A Module of a program.

    `source`: a path (PathLike, or str without a newline), HLO or StableHLO text, bytes (HLO proto, StableHLO bytecode,
    ONNX), an `onnx.ModelProto`, a `jax.stages.Lowered`, or a `jax.stages.Compiled` (XLA's own result, to be read).
    `format` decides where suffix and content cannot.  `prepare`: run what XLA's compile pipeline runs before
    propagation; by default for what JAX lowered (StableHLO, lowerings, HLO with Shardy's marks), not for other HLO,
    which is taken as it stands.  Of what JAX lowered, parameters and outputs without a sharding are open, as JAX tells
    XLA; of HLO text, those that its first line names.

    `inputs`, of an ONNX model: by name arrays or `jax.ShapeDtypeStruct`; they bind dims that are open, and values that
    decide shapes.  Parameters are the other inputs in order, then the weights, whose values `Module.weights` holds.
    `configuration`: by which of the model's own device annotations it is sharded, where it has several.

    `custom_calls`: targets of native code that may run beside LAPACK's, where the file is trusted.  Raises LoadError;
    AnnotationError for device annotations that contradict the model.

    >>> load("HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0)\\n}")
    Module(m, 1 instructions, 1 partitions)
    """
    if format is not None and format not in get_args(ProgramFormat):
        raise LoadError(f"unknown format {format!r}", remedy=f"use one of {', '.join(get_args(ProgramFormat))}")
    content, origin = source, None
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source):
        origin = Path(source)
        format = format or named_format(origin)
        content = read_whole(origin, remedy=_NO_FILE)
    try:
        reader = _reader(content, format)
        if reader is not None:
            is_prepared = prepare is not False
            return reader.read(content, inputs, path=origin, prepare=is_prepared, configuration=configuration)
        if inputs or configuration:
            said = f"inputs ({', '.join(inputs)})" if inputs else f"a configuration ({configuration})"
            raise LoadError(f"{said} for what is no ONNX model", remedy="leave them out: the program says all sizes")
        module, is_prepared_by_default = _parse(content, format)
        _check_devices(module)
    except LoadError as error:
        if origin is None:
            raise
        where = f"{origin}, {error.where}" if error.where else str(origin)
        raise LoadError(error.what, where=where, remedy=error.remedy) from error
    if custom_calls and module.custom_calls is not None:
        module.custom_calls = frozenset(custom_calls)
    if not (is_prepared_by_default if prepare is None else prepare):
        return module
    # A module that was given is its owner's, who finds it as it was.
    return prepare_module(module) if module is source else prepare_edit(Edit(module))


def _reader(content: Any, format: ProgramFormat | None) -> ProgramReader | None:
    """None for HLO, in whatever form."""
    if format is not None:
        return READERS.get(format)
    return next((reader for reader in READERS.values() if reader.is_one(content)), None)


def _check_devices(module: Module) -> None:
    count = module.num_partitions * module.num_replicas
    if count > MOST_DEVICES:
        raise LoadError(f"the program is for {count} devices", remedy=f"{MOST_DEVICES} are the most there can be")


def named_format(path: Path) -> ProgramFormat | None:
    """What a file's name says of its format.

    >>> named_format(Path("model.ONNX")), named_format(Path("model.bin"))
    ('onnx', None)
    """
    return _SUFFIXES.get(path.suffix.lower())


def _parse(content: Any, format: ProgramFormat | None) -> tuple[Module, bool]:
    """The module, and whether it is one to be prepared by default."""
    if hasattr(content, "compiler_ir") and hasattr(content, "as_text"):
        return from_lowered(content), True
    if hasattr(content, "runtime_executable"):
        return from_compiled(content), False
    if isinstance(content, (bytearray, memoryview)):
        content = bytes(content)
    if isinstance(content, Module):
        return content, False
    if not isinstance(content, (str, bytes)):
        remedy = "pass a path, text, bytes, a jax Lowered or an onnx.ModelProto"
        raise LoadError(f"{type(content).__name__} is no program", remedy=remedy)
    # What some editors put before a text to say how it is written.
    content = content.removeprefix("\ufeff") if isinstance(content, str) else content.removeprefix(b"\xef\xbb\xbf")
    if not content or content.isspace():
        raise LoadError("the input is empty", remedy="give HLO text, a serialized HloModuleProto, or StableHLO")
    match format or _guess(content):
        case "hlo":
            return _from_hlo(from_hlo_text(_text(content)))
        case "hlo-proto":
            return _from_hlo(from_hlo_proto(_bytes(content)))
        case _:
            is_text = isinstance(content, str) or not content.startswith(MLIR_BYTECODE)
            return from_stablehlo(_text(content) if is_text else content), True


def _from_hlo(module: Module) -> tuple[Module, bool]:
    """As it stands; but what JAX lowered, which Shardy's marks tell, is read as its StableHLO is.

    Text that parses, and bytes that are a proto, may well be of ops that contradict themselves.
    """
    try:
        verify(module)
    except ModuleError as error:
        raise LoadError(f"not a valid HLO module: {error.what}", where=error.where, remedy=error.remedy) from error
    return (from_lowering(module), True) if has_shardy_marks(module) else (module, False)


def _guess(content: str | bytes) -> ProgramFormat:
    if isinstance(content, bytes):
        if content.startswith(MLIR_BYTECODE):
            return "stablehlo"
        try:
            content = content.decode()
        except UnicodeDecodeError:
            return "hlo-proto"
        # A small proto may be letters to UTF-8, and no program's text holds a zero byte.
        if "\0" in content:
            return "hlo-proto"
    # Of a copy of the beginning: with its constants a text may fill the memory.
    first = _SKIPPED.sub("", content[:1_000_000], count=1)
    return "stablehlo" if first.startswith(_MLIR_STARTS) else "hlo"


def _text(content: str | bytes) -> str:
    if isinstance(content, str):
        if not is_writable(content):
            raise LoadError("not text: it holds half a letter", remedy="read the file as UTF-8")
        return content
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise LoadError(
            f"not text: {error}", remedy='pass format="hlo-proto" for a serialized HloModuleProto'
        ) from error


def _bytes(content: str | bytes) -> bytes:
    if isinstance(content, str):
        raise LoadError("a serialized HloModuleProto is bytes, this is text", remedy="open the file in binary mode")
    return content
