"""A child process for conversions: XLA's parsers end their process on some malformed input, and ours must live.

Floor: ground.  Knows pipes and frames; which conversions there are is the business of `xla_bridge`, whose `serve` runs
in the child.  The child starts at the first question (0.2 s), answers all later ones, and is replaced when it dies.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, BinaryIO

from hlosharding.errors import LoadError

_HEAD = struct.Struct(">BQ")
_START = "from hlosharding.xla_bridge import serve; serve()"
_CHECK = re.compile(r"[\w.]+:\d+\] (Check failed: .*|[A-Z].*)")
_SECONDS = 300.0
"""Patience with one conversion: jaxlib parses ten megabytes in some seconds."""


class Child:
    """One child process; `ask` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._errors: IO[bytes] | None = None

    def ask(self, kind: str, payload: bytes, *, seconds: float = _SECONDS) -> bytes:
        """The child's answer to a conversion; LoadError with XLA's words where it has none, or dies, or hangs."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            deadline = time.monotonic() + seconds
            try:
                write_frame(process.stdin, len(kind), kind.encode() + payload)
                status, answer = self._read(process, deadline)
            except (BrokenPipeError, EOFError) as error:
                raise LoadError(f"XLA's parser ended its process on this input: {self._last_words()}") from error
            except TimeoutError as error:
                self.close()
                raise LoadError(f"XLA's parser did not come to an end within {seconds:g} s") from error
        if status:
            raise LoadError(answer.decode("utf-8", "replace"))
        return answer

    def close(self) -> None:
        """Stop the child."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        # A forked process must not talk through its parent's pipes.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[int, bytes]:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        head = _read_exactly(descriptor, _HEAD.size, deadline)
        status, length = _HEAD.unpack(head)
        return status, _read_exactly(descriptor, length, deadline)

    def _last_words(self) -> str:
        """What a dying child said: XLA's failed check, or the signal."""
        process = self._process
        code = process.wait() if process is not None else None
        text = ""
        if self._errors is not None:
            self._errors.seek(0)
            text = self._errors.read()[-100_000:].decode("utf-8", "replace")
        checks = [m[1] for m in _CHECK.finditer(text) if "Check failed" in m[1] or "Unsupported" in m[1]]
        self.close()
        return checks[-1][:500] if checks else f"exit status {code}"


def write_frame(pipe: BinaryIO | IO[bytes], status: int, payload: bytes) -> None:
    """One message: a small number, then bytes.  In a question the number is the length of the kind in front."""
    pipe.write(_HEAD.pack(status, len(payload)))
    pipe.write(payload)
    pipe.flush()


def read_frame(pipe: BinaryIO) -> tuple[int, bytes] | None:
    """The next message, or None at the end."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    status, length = _HEAD.unpack(head)
    return status, pipe.read(length)


def _read_exactly(descriptor: int, length: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


_child = Child()
atexit.register(_child.close)


def ask(kind: str, payload: bytes) -> bytes:
    """The answer of this process's child to one conversion; see `Child.ask`."""
    return _child.ask(kind, payload)
