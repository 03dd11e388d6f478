"""Files in and out: read whole within bounds, written whole or not at all.

Floor: ground.  Standard library only.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hlosharding.errors import HloShardingError, LoadError

# Letters of a file's name in its draft's, which adds a number: systems refuse more than 255 bytes, and UTF-8 takes
# up to four a letter.
_LONGEST_NAME = 48


def read_whole(
    path: str | os.PathLike[str],
    error: type[HloShardingError] = LoadError,
    *,
    most: int | None = None,
    remedy: str | None = None,
) -> bytes:
    """All of a file, of at most `most` bytes.  Raises `error`, for a folder and a name that is none, too.

    >>> read_whole("no such file")
    Traceback (most recent call last):
    ...
    hlosharding.errors.LoadError: cannot read no such file: No such file or directory
    """
    name = str(path)[:200]
    try:
        with Path(path).open("rb") as file:
            data = file.read() if most is None else file.read(most + 1)
    except OSError as found:
        raise error(f"cannot read {name}: {found.strerror or found}", remedy=remedy) from found
    except ValueError as found:
        raise error(f"not a path: {name!r} ({found})") from found
    if most is not None and len(data) > most:
        raise error(f"{name} has more than {most:,} bytes", remedy=remedy)
    return data


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """A file that appears only when it is complete.  Raises HloShardingError where that cannot be.

    >>> write_whole("/no/such/folder/file", "text")
    Traceback (most recent call last):
    ...
    hlosharding.errors.HloShardingError: cannot write /no/such/folder/file: No such file or directory
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that takes its place only when it is whole, whoever else writes it now.  A link stays a link.

    Raises HloShardingError where that cannot be.
    """
    with writing(path):
        place = Path(path).resolve()
        draft = place.with_name(f".{place.name[-_LONGEST_NAME:]}.{secrets.token_hex(8)}.part")
        try:
            with draft.open("xb") as file:
                yield file
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system says meanwhile is that `path` cannot be written: HloShardingError.  Broken pipes stay these."""
    try:
        yield
    except UnicodeEncodeError as error:  # half a letter, as JSON may have it
        raise HloShardingError(f"cannot write {path}: {error.object[error.start]!r} is no character") from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise HloShardingError(f"cannot write {path}: {error.strerror or error}") from error
