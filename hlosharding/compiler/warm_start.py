"""A program that was partitioned and compiled before, by this process or another, is found and not made again.

Floor: compiler.  Which programs are equal and how they lie on disk is the business of `program_cache`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from hlosharding import xla_bridge
from hlosharding.compiler.kept_executable import KeptExecutable
from hlosharding.compiler.partitioned import Partitioned, partition, prices_of
from hlosharding.compiler.program_cache import Entry, ProgramCache, needs_this_process, program_key, traced_key
from hlosharding.cost import Machine, Topology
from hlosharding.executor import Boundary, Executable
from hlosharding.frontends import TracedCall
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Propagation, propagate
from hlosharding.rules import count_changes

_REMEMBERED = 256
"""Executables of functions that may be gone: libraries jit a new closure for each call."""
_LARGEST_REMEMBERED = 1 << 20
"""Bytes of constants: a larger program goes with its function."""


_ready: OrderedDict[str | None, tuple[Boundary, Any]] = OrderedDict()
"""By key: what this process compiled or loaded, last used last."""
_one_at_a_time = Lock()
"""Who looks an entry up moves it, too, and another thread may drop it meanwhile."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced call as it is compiled where nobody asks for more: on its own devices, with its own options."""

    call: TracedCall
    compiler_options: dict[str, Any]
    keep_unused: bool = False

    def key(self) -> str | None:
        """Of its program, partitioned with the defaults; found without lowering.  None: only the HLO has one."""
        return traced_key(self.call.digest(), self.call.jax.fun_name, *self.said())

    @property
    def shared_key(self) -> tuple[Any, int]:
        """Equal for calls of a function that are the same program, until another rule is registered."""
        return self.call.key, count_changes()

    def said(self) -> tuple[Any, ...]:
        """What the executable depends on beside the program."""
        devices = self.call.signature.devices or ()
        compilation = xla_bridge.compilation_key(devices, self.compiler_options) if devices else None
        return compilation, self.call.donated, self.keep_unused, count_changes(), sorted(self.compiler_options.items())


class ProgramOnce:
    """A program and its executable: found under a key, else made when asked for; kept when it is compiled."""

    def __init__(
        self,
        trace: Trace,
        key: str | None,
        source: Callable[[], Module | Propagation],
        *,
        machine: Machine | Topology | None = None,
        options: PartitionOptions | None = None,
        shared: dict[Any, Partitioned] | None = None,
    ) -> None:
        self._trace, self._key, self._source = trace, key, source
        self._shared: dict[Any, Partitioned] = {} if shared is None else shared
        self._shared_key = trace.shared_key
        self._machine, self._options = machine, options
        self._cache = ProgramCache.of_jax() if key is not None else None
        self._seconds: float | None = None

    @property
    def is_known(self) -> bool:
        """Was it compiled before?"""
        return self._key in _ready or self._entry is not None

    @cached_property
    def _entry(self) -> Entry | None:
        return self._cache.read(self._key) if self._cache is not None and self._key is not None else None

    @cached_property
    def partitioned(self) -> Partitioned:
        """The per-device program.  Of a module whose program is read nothing is propagated."""
        if self._shared_key not in self._shared:
            self._shared[self._shared_key] = self._partitioned()
        return self._shared[self._shared_key]

    def _partitioned(self) -> Partitioned:
        source = self._source()
        module = _module(source)
        known = self._entry.program(module) if self._entry is not None else None
        if known is not None:
            prices = prices_of(self._machine, module.num_partitions, module)
            why = source if isinstance(source, Propagation) else lambda: propagate(module)
            return Partitioned(known, module, prices, why, self._options)
        start = time.perf_counter()
        made = partition(source, machine=self._machine, options=self._options)
        self._seconds = time.perf_counter() - start
        return made

    def executable(self) -> Executable | None:
        """What was compiled before, on the devices of the trace."""
        ready = _recall(self._key)
        if ready is not None:
            return self._executable(*ready)
        kept = self._entry.executable(self._trace.call.signature) if self._entry is not None else None
        if kept is None:
            return None
        found = self._executable(kept.boundary)
        if not found.load(kept.stored):
            return None
        self._remember(found)
        return found

    def _executable(self, boundary: Boundary, compiled: Any = None) -> Executable:
        call = self._trace.call
        devices = call.signature.devices
        assert devices is not None, "else it has no key"
        return Executable(
            boundary,
            devices,
            donate=call.donated,
            compiler_options=self._trace.compiler_options,
            signature=call.signature,
            loaded=compiled,
            keep_unused=self._trace.keep_unused,
        )

    def keep(self, executable: Executable | None, seconds: float) -> None:
        """Remember the program that was compiled in so many seconds, so that it is not made again.

        `executable`: None where it is for other devices, or made with other options, than a call's.
        """
        if self._key is None or needs_this_process(_module(self._source())):
            return
        if executable is not None:
            self._remember(executable)
        # Only what was made here: a program that was read lies there already.
        if self._cache is not None and self._seconds is not None:
            self._cache.write(
                self._key, self.partitioned.local, self._seconds + seconds, lambda: _kept(executable)
            )  # fmt: skip

    def _remember(self, executable: Executable) -> None:
        constants = sum(getattr(constant, "nbytes", 0) for constant in self._trace.call.jax.jaxpr.consts)
        # With inputs of less than a byte it is not the compiled program that is called.
        if self._key is None or executable.is_jitted or constants > _LARGEST_REMEMBERED:
            return
        compiled = executable.compiled
        with _one_at_a_time:
            _ready[self._key] = executable.boundary, compiled
            while len(_ready) > _REMEMBERED:
                _ready.popitem(last=False)


def _recall(key: str | None) -> tuple[Boundary, Any] | None:
    with _one_at_a_time:
        if key in _ready:
            _ready.move_to_end(key)
        return _ready.get(key)


def forget() -> None:
    """What this process remembers; not what lies on disk."""
    with _one_at_a_time:
        _ready.clear()


def _module(source: Module | Propagation) -> Module:
    return source.module if isinstance(source, Propagation) else source


def _kept(executable: Executable | None) -> KeptExecutable | None:
    stored = executable.stored() if executable is not None else None
    return None if executable is None or stored is None else KeptExecutable(stored, executable.boundary)


def once_traced(trace: Trace, source: Callable[[], Module], shared: dict[Any, Partitioned]) -> ProgramOnce:
    """The program of a traced function whose module nobody has seen, partitioned with the defaults.

    `shared`: what other calls of the function were partitioned to; no trace is kept there, nor what it closes over.
    """
    key = trace.key()
    if key is None and trace.shared_key not in shared:
        return once_lowered(trace, source(), shared=shared)
    return ProgramOnce(trace, key, source, shared=shared)


def once_lowered(
    trace: Trace,
    source: Module | Propagation,
    *,
    machine: Machine | Topology | None = None,
    options: PartitionOptions | None = None,
    shared: dict[Any, Partitioned] | None = None,
) -> ProgramOnce:
    """The program of a module.  It is looked for only where JAX keeps programs on disk: its checksum takes time."""
    module = _module(source)
    annotated = source.annotated if isinstance(source, Propagation) else None
    prices = prices_of(machine, module.num_partitions, module)
    is_on = ProgramCache.of_jax() is not None
    key = program_key(module, prices, options, annotated=annotated, said=trace.said()) if is_on else None
    return ProgramOnce(trace, key, lambda: source, machine=machine, options=options, shared=shared)
