"""Files in and out: FILE or standard input; results whole or not at all.

Floor: cli.
"""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hlosharding.errors import LoadError
from hlosharding.whole_files import read_whole, replacing, writing


def read_program(file: str) -> Path | bytes:
    """What `hs.load` takes: the path, or the bytes of what can be read but once: a pipe, standard input for `-`.

    Raises LoadError for no such file.
    """
    if file == "-":
        return _standard_input()
    path = Path(file)
    if not path.exists() or path.is_dir():
        raise LoadError(f"cannot read {file}: {'it is a folder' if path.is_dir() else 'no such file'}")
    return path if path.is_file() else read_whole(path)


def read_text() -> str:
    """All of standard input.  Raises LoadError for what is no text."""
    try:
        return _standard_input().decode()
    except UnicodeDecodeError as error:
        raise LoadError(f"standard input is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise LoadError(f"cannot read standard input: {error.strerror or error}") from error


def write(content: str | bytes, output: str | None) -> None:
    """To a file, or to standard output for None and `-`.  Text ends with a newline."""
    if isinstance(content, str):
        content = content if content.endswith("\n") else content + "\n"
    if output is None or output == "-":
        if isinstance(content, str):
            sys.stdout.write(content)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        return
    with open_output(output) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def open_output(output: str) -> Iterator[IO[bytes]]:
    """A file to write: one that takes its place only when it is whole, or what is open already under its name.

    Raises HloShardingError where that cannot be.
    """
    if not _stays(output):
        with replacing(output) as file:
            yield file
        return
    with writing(output):
        sys.stdout.flush()
        # Appended: where /dev/stdout is a file it may have lines already, and those just flushed.
        with Path(output).open("ab") as file:
            yield file


def _stays(output: str) -> bool:
    """Does a name mean something open already (a device, a pipe, /dev/stdout), which no file can take the place of?"""
    try:
        # /dev/stdout may be a regular file, where the shell sends it to one: its name is not to be taken by another.
        return not stat.S_ISREG(Path(output).stat().st_mode) or Path(output).absolute().parts[1] in ("dev", "proc")
    except OSError:
        return False


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes its time, where a person watches."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield
