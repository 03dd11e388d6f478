"""What the live XLA does to a JAX program: its module before and after each of GSPMD's two passes, and their times.

Public JAX only: the program is lowered with Shardy off and compiled with options that dump the passes' modules.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

PROPAGATION, PARTITIONING = "sharding-propagation", "spmd-partitioning"
# Only the passes before code generation are looked at, so code generation may be quick and bad.
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# What takes XLA minutes behind the two passes at 96 layers; without it the compile ends early, with an error.  Without
# copy-insertion, too, it would end the process, where a program draws random numbers.
_LATER = "layout-assignment,fusion,simplification,cpu-all-reduce-combiner"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModules:
    """HloModuleProto bytes of one program at three moments of XLA's compilation."""

    prepared: bytes
    """As `sharding-propagation` found it."""
    propagated: bytes
    """As `sharding-propagation` left it."""
    partitioned: bytes
    """As `spmd-partitioning` left it: local shapes, explicit collectives."""


@contextlib.contextmanager
def gspmd(*, shardy: bool = False) -> Iterator[None]:
    """JAX with GSPMD (or Shardy) for its partitioner, as long as the context lasts."""
    before = jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        yield
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)


def lower(function: Callable[..., Any], arguments: tuple[Any, ...], **jit_options: Any) -> jax.stages.Lowered:
    """`jax.jit(function, **jit_options).lower(*arguments)` for GSPMD."""
    with gspmd():
        return jax.jit(function, **jit_options).lower(*arguments)


def modules(lowered: jax.stages.Lowered) -> LiveModules:
    """Compile, and read what the two passes were given and what they made of it."""
    with tempfile.TemporaryDirectory(prefix="live_xla_") as folder:
        dumps: dict[str, Any] = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_proto": True,
            "xla_dump_hlo_pass_re": f"{PROPAGATION}|{PARTITIONING}",
        }
        with gspmd():
            lowered.compile(compiler_options=QUICK | dumps)
        return LiveModules(
            prepared=_dump(Path(folder), f"before_{PROPAGATION}"),
            propagated=_dump(Path(folder), f"after_{PROPAGATION}"),
            partitioned=_dump(Path(folder), f"after_{PARTITIONING}"),
        )


def partitioned_by(
    function: Callable[..., Any], arguments: Sequence[Any], *, shardy: bool, **jit_options: Any
) -> bytes:
    """What `spmd-partitioning` makes of a function, its shardings propagated by GSPMD or by Shardy."""
    with gspmd(shardy=shardy):
        return _partitioned(jax.jit(function, **jit_options).lower(*arguments))


def partitioned_only(lowered: jax.stages.Lowered) -> bytes:
    """What `spmd-partitioning` makes of a program that was lowered for GSPMD."""
    with gspmd():
        return _partitioned(lowered)


def _partitioned(lowered: jax.stages.Lowered) -> bytes:
    """What follows the pass is mostly left out, so no program comes of it."""
    with tempfile.TemporaryDirectory(prefix="live_xla_") as folder:
        dumps = {"xla_dump_to": folder, "xla_dump_hlo_as_proto": True, "xla_dump_hlo_pass_re": PARTITIONING}
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options=QUICK | dumps | {"xla_disable_hlo_passes": _LATER})
        return _dump(Path(folder), f"after_{PARTITIONING}")


def _dump(folder: Path, moment: str) -> bytes:
    found = sorted(folder.glob(f"*{moment}*.hlo.pb"))
    if not found:
        raise RuntimeError(f"XLA left no dump {moment}: was the program lowered for one partition, or with Shardy?")
    return _field_1(found[0].read_bytes())


def _field_1(proto: bytes) -> bytes:
    """The first field of a message: HloProto is nothing but an HloModuleProto and, behind it, buffer assignments."""
    if proto[0] != 0x0A:
        raise RuntimeError("XLA's dump does not start with a module")
    length, shift, at = 0, 0, 1
    while True:
        byte = proto[at]
        length |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return proto[at : at + length]


def pass_seconds(lowered: jax.stages.Lowered) -> dict[str, float]:
    """Compile under JAX's profiler: seconds of each of the two passes.

    A program that was compiled before must be lowered anew, after `jax.clear_caches()`: else JAX compiles nothing.
    """
    with tempfile.TemporaryDirectory(prefix="live_xla_") as folder:
        with gspmd(), jax.profiler.trace(folder):
            lowered.compile(compiler_options=QUICK)
        profile = next(Path(folder).rglob("*.xplane.pb"))
        return _durations(jax.profiler.ProfileData.from_file(str(profile)))


def pass_seconds_only(lowered: jax.stages.Lowered) -> dict[str, float]:
    """As `pass_seconds`, with most of what follows the two passes left out: there is no program in the end."""
    with tempfile.TemporaryDirectory(prefix="live_xla_") as folder:
        with gspmd(), jax.profiler.trace(folder), contextlib.suppress(jax.errors.JaxRuntimeError):
            lowered.compile(compiler_options=QUICK | {"xla_disable_hlo_passes": _LATER})
        profile = next(Path(folder).rglob("*.xplane.pb"))
        return _durations(jax.profiler.ProfileData.from_file(str(profile)))


def _durations(profile: Any) -> dict[str, float]:
    seconds: dict[str, float] = {PROPAGATION: 0.0, PARTITIONING: 0.0}
    for plane in profile.planes:
        for line in plane.lines:
            for event in line.events:
                if event.name in seconds:
                    seconds[event.name] += event.duration_ns * 1e-9
    if not all(seconds.values()):
        raise RuntimeError(f"the profile lacks one of the passes: {seconds}")
    return seconds
