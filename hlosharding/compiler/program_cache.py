"""Partitioned programs on disk, beside the executables that JAX keeps there: a second process repeats no pass.

Floor: compiler.  Where JAX's compilation cache is on, and as its settings say.  A file is data, an HLO proto and a JSON
record behind a checksum, written whole or not at all; the Python source is written anew from what was read.
"""

from __future__ import annotations

import json
import os
import re
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from hashlib import sha256
from operator import eq
from pathlib import Path
from typing import Any

from hlosharding.compiler.kept_executable import KeptExecutable
from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError
from hlosharding.executor import BoundaryArray, ShardMapProgram
from hlosharding.ir import FunctionBoundary, Instruction, Module, digest
from hlosharding.partitioner import LocalProgram, PartitionOptions, ShardingOverride
from hlosharding.rules import has_users_rule
from hlosharding.sharding import HloSharding
from hlosharding.spmd import verify_partitioned
from hlosharding.whole_files import write_whole

FOLDER = "hlosharding"
_MAGIC = b"hlosharding program 2\n"
_LENGTH = struct.Struct(">Q")
_DIGEST_SIZE = sha256().digest_size
_UNSAFE = re.compile(r"[^\w.<>-]")


@dataclass(frozen=True, slots=True)
class ProgramCache:
    """A folder of partitioned programs, and what is worth keeping there."""

    folder: Path
    min_seconds: float = 0.0
    """What was made faster is not kept."""
    min_bytes: int = 0
    """What is smaller is not kept."""
    max_bytes: int = -1
    """Of all files together: what was not used for longest goes; -1: no limit."""

    @classmethod
    def of_jax(cls) -> ProgramCache | None:
        """As JAX's own is set; None where it is off, or no folder of this machine."""
        import jax

        config: Any = jax.config
        root = config.jax_compilation_cache_dir
        if not root or "://" in str(root) or not config.jax_enable_compilation_cache:
            return None
        return cls(
            Path(root) / FOLDER,
            config.jax_persistent_cache_min_compile_time_secs,
            config.jax_persistent_cache_min_entry_size_bytes,
            config.jax_compilation_cache_max_size,
        )

    def read(self, key: str) -> Entry | None:
        """What is kept under that key; None where there is nothing, or a file that is none of ours."""
        path = self.folder / key
        try:
            if not path.is_file():  # a pipe would be waited for
                return None
            entry = Entry.unpacked(path.read_bytes(), key)
            if self.max_bytes >= 0:
                os.utime(path)
        except Exception:  # noqa: BLE001  (whatever is wrong with a file that others may write, the call goes on)
            return None
        return entry

    def write(
        self,
        key: str,
        program: LocalProgram,
        seconds: float,
        executable: Callable[[], KeptExecutable | None] = lambda: None,
    ) -> None:
        """Keep a program that took so long to make.  A folder that takes nothing is a warning, as with JAX."""
        if seconds < self.min_seconds:
            return
        data = _packed(key, program, executable())
        # For one that is larger than all files may be, all others would be deleted, and it would still be too large.
        if len(data) < self.min_bytes or 0 <= self.max_bytes < len(data):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(len(data))
            write_whole(self.folder / key, data)
        except (OSError, HloShardingError) as error:
            warnings.warn(f"the partitioned program is not kept in {self.folder}: {error}", stacklevel=2)

    def _make_room(self, size: int) -> None:
        if self.max_bytes < 0:
            return
        files = self._files()
        taken = size + sum(file[1] for file in files)
        for _, length, path in files:
            if taken <= self.max_bytes:
                return
            Path(path).unlink(missing_ok=True)
            taken -= length

    def _files(self) -> list[tuple[float, int, str]]:
        """When each was last used, its size, its path; what was not used for longest stands first."""
        found: list[tuple[float, int, str]] = []
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):  # another process makes room, too
                found.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
        return sorted(found)


@dataclass(frozen=True, slots=True)
class Entry:
    """What a file says.  Each part is checked when it is asked for."""

    record: dict[str, Any]
    proto: bytes

    @staticmethod
    def unpacked(data: bytes, key: str) -> Entry:
        """Raises an error for another file, or a part of one."""
        start = len(_MAGIC) + _DIGEST_SIZE
        body = data[start:]
        if not data.startswith(_MAGIC) or sha256(body).digest() != data[len(_MAGIC) : start]:
            raise ValueError("no program of ours, or not all of it")
        end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        record = json.loads(body[_LENGTH.size : end])
        if record["key"] != key:
            raise ValueError("another program")
        return Entry(record, body[end:])

    def executable(self, signature: FunctionBoundary) -> KeptExecutable | None:
        """What runs, for a function of that signature; None where there is none."""
        try:
            record = self.record["executable"]
            kept = None if record is None else KeptExecutable.read(record, signature.devices or ())
            return kept if kept is not None and kept.fits(signature) else None
        except Exception:  # noqa: BLE001  (as above)
            return None

    def program(self, source: Module) -> LocalProgram | None:
        """The program, made of `source`; None where it is none."""
        try:
            return _program(self.record, self.proto, source)
        except Exception:  # noqa: BLE001  (as above)
            return None


def traced_key(digest: bytes | None, name: str, *said: Any) -> str | None:
    """The name of the file of a traced function's program, which was not lowered; None where it has no checksum.

    `said`: what else the program depends on.
    """
    return None if digest is None else _key(name, digest, ("traced", *said))


def program_key(
    module: Module,
    machine: Machine,
    options: PartitionOptions | None = None,
    *,
    annotated: frozenset[str] | None = None,
    said: tuple[Any, ...] = (),
) -> str | None:
    """The name of a program's file: equal only where all is equal that the program depends on.

    `annotated`: of a propagated module those whose shardings are the user's.  `said`: what the executable depends on.
    None for what no file can hold: functions of this process that the program calls or was partitioned by, dumps of
    passes.
    """
    options = options or PartitionOptions()
    if options.dump_passes is not None or needs_this_process(module):
        return None
    places = _places(module) if options.trips else ""  # which may name loops by their lines
    words = places, annotated and sorted(annotated), annotated is None, repr(machine), _spelled(options), *said
    return _key(module.name, digest(module), words)


def needs_this_process(module: Module) -> bool:
    """Does the program call functions of this process, or was it partitioned by some?"""
    return bool(module.callbacks or module.partitionings) or has_users_rule(module)


def _key(name: str, checksum: bytes, said: tuple[Any, ...]) -> str:
    said = said if ProgramCache.of_jax() is None else (*said, versions())  # which are those of this process anyway
    # The name is the user's function's, cut and cleaned for the file system: the checksum alone tells programs apart.
    # File systems count bytes, of which a letter may have four.
    clean = _UNSAFE.sub("_", name[:100]).encode()[:100].decode(errors="ignore")
    return f"{clean}-{sha256(checksum + repr(said).encode()).hexdigest()}"


def _spelled(options: PartitionOptions) -> list[Any]:
    """Every field, also those of tomorrow."""
    values = [(field.name, getattr(options, field.name)) for field in fields(options)]
    return [(name, sorted(value.items()) if isinstance(value, Mapping) else value) for name, value in values]


@lru_cache(maxsize=1)
def versions() -> tuple[str, ...]:
    """Of whoever has a say: ours by every source file, for a working copy changes without a new number."""
    import jax.lib

    package = str(Path(__file__).parent.parent)
    sources = sha256()
    for folder, folders, files in os.walk(package):
        folders.sort()
        for file in sorted(file for file in files if file.endswith(".py")):
            with open(f"{folder}/{file}", "rb", buffering=0) as source:  # half of what pathlib takes
                text = source.readall()
            sources.update(f"{folder.removeprefix(package)} {file} {len(text)}\n".encode() + text)
    return sources.hexdigest(), jax.__version__, jax.lib.__version__  # pyright: ignore[reportPrivateImportUsage]


def _packed(key: str, program: LocalProgram, executable: KeptExecutable | None) -> bytes:
    record = {
        "key": key,
        "num_partitions": program.module.num_partitions,
        "places": _places(program.module),
        "warnings": list(program.warnings),
        "overrides": [[o.name, str(o.propagated), str(o.chosen), o.why] for o in program.overrides],
        "executable": executable and executable.record(),
    }
    head = json.dumps(record).encode()
    body = _LENGTH.pack(len(head)) + head + program.module.to_hlo_proto()
    return _MAGIC + sha256(body).digest() + body


def _program(record: dict[str, Any], proto: bytes, source: Module) -> LocalProgram:
    module = Module.from_proto(proto)
    module.num_partitions = record["num_partitions"]
    _check_fits(module, source)
    module.mesh, module.signature, module.weights = source.mesh, source.signature, source.weights
    module.custom_calls, module.elided = source.custom_calls, source.elided
    is_moved = record["places"] != _places(source)
    if is_moved and (record["warnings"] or not _is_called_alike(module, source)):
        raise ValueError("its words name lines that are others now")
    # Lines are those of the process that asks: they are not part of the key, and may have moved since.
    module.proto.stack_frame_index.CopyFrom(source.proto.stack_frame_index)
    return LocalProgram(module, [str(w) for w in record["warnings"]], _overrides(record["overrides"], source))


def _check_fits(module: Module, source: Module) -> None:
    """Raises an error for what is no per-device program, or takes or gives other arrays: a checksum is not a seal."""
    if source.num_partitions not in (1, module.num_partitions):
        raise ValueError("for another number of devices")
    verify_partitioned(module)
    given, made = source.entry, module.entry
    inputs = [_layouts(g, m, module) for g, m in zip(given.parameters, made.parameters, strict=True)]
    outputs = _layouts(given.root, made.root, module)
    _ = ShardMapProgram(module, inputs=[layout for side in inputs for layout in side], outputs=outputs).boundary


def _layouts(given: Instruction, made: Instruction, module: Module) -> list[BoundaryArray]:
    if [leaf.element_type for leaf in given.shape.leaves] != [leaf.element_type for leaf in made.shape.leaves]:
        raise ValueError("arrays of other types")
    sharding = module.shardings[made.id]
    sharding.validate(given.shape, module.num_partitions)
    return [BoundaryArray(shape, leaf) for shape, leaf in zip(given.shape.leaves, sharding.leaves, strict=True)]


def _places(module: Module) -> str:
    """A checksum of the source lines."""
    return sha256(module.proto.stack_frame_index.SerializeToString()).hexdigest()


def _is_called_alike(module: Module, source: Module) -> bool:
    """Do frames of the same numbers stand for the same calls?"""
    ours, theirs = (m.proto.stack_frame_index.stack_frames for m in (module, source))
    return len(ours) == len(theirs) and all(map(eq, ours, theirs))


def _overrides(rows: Sequence[Sequence[str]], source: Module) -> tuple[ShardingOverride, ...]:
    parsed = cache(HloSharding.parse)  # thousands of values have a dozen shardings

    def override(name: str, propagated: str, chosen: str, why: str) -> ShardingOverride:
        return ShardingOverride(source.by_name(name), parsed(propagated), parsed(chosen), why)

    return tuple(override(*map(str, words)) for words in rows)
