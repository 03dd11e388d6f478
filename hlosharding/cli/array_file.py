"""An .npz file that somebody wrote: what an array says of itself is looked at before memory is taken for it.

Floor: cli.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError, HloShardingError

_SUFFIX = ".npy"
_REMEDY = "write the arrays with np.savez"
_MOST_BYTES = 1 << 32
"""Of all arrays together, where nobody says what they must be: some megabytes of zip may hold terabytes of zeros."""
_MOST_HEADER = 2048
"""Bytes: of 64 dims of 19 digits each it has 1,400.  numpy reads what Python 2 may have written in quadratic time."""


class ArrayFile:
    """The arrays of a file, by name.  Raises ExecutionError for whatever is wrong with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self._reading():
            if not zipfile.is_zipfile(path):
                raise ExecutionError(f"{path} is no .npz file", remedy=_REMEDY)
            self._zip = zipfile.ZipFile(path)
            self._members = {i.filename.removesuffix(_SUFFIX): i for i in self._zip.infolist() if not i.is_dir()}

    @property
    def names(self) -> list[str]:
        """In the order of the file."""
        return list(self._members)

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Sizes and type of an array that is there in full."""
        info = self._members[name]
        with self._reading(name), self._zip.open(info) as file:
            if np.lib.format.read_magic(file) != (1, 0):  # later ones are for headers longer than an array's
                raise ExecutionError(f"{name} in {self.path} is of an unknown version", remedy=_REMEDY)
            dims, _, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_MOST_HEADER)
            if not _is_plain(dtype) or min(dims, default=0) < 0:
                raise ExecutionError(f"{name} in {self.path} is no array of numbers: {dtype}", remedy=_REMEDY)
            # numpy takes the memory that a header asks for before it looks for the bytes: terabytes, of a kilobyte.
            if file.tell() + prod(dims) * dtype.itemsize != info.file_size:
                raise ExecutionError(f"{name} in {self.path} has not the bytes of {dtype}{list(dims)}", remedy=_REMEDY)
        return dims, dtype

    def read(self, name: str) -> np.ndarray:
        """An array whose header fits what is wanted."""
        self.header(name)
        with self._reading(name), self._zip.open(self._members[name]) as file:
            found: Any = np.lib.format.read_array(file, allow_pickle=False, max_header_size=_MOST_HEADER)
            return found

    def read_all(self) -> dict[str, np.ndarray]:
        """Every array, where together they are no larger than can be taken unseen."""
        nbytes = sum(info.file_size for info in self._members.values())
        if nbytes > _MOST_BYTES:
            raise ExecutionError(
                f"the arrays of {self.path} have {nbytes:,} bytes", remedy="leave out what is not read"
            )
        return {name: self.read(name) for name in self._members}

    @contextmanager
    def _reading(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except (HloShardingError, MemoryError):  # memory that runs out is no fault of the file's
            raise
        except Exception as error:  # of damaged bytes zipfile, zlib, numpy and its tokenizer raise a dozen kinds
            what = f"cannot read {name + ' in ' if name else ''}{self.path}: {error or type(error).__name__}"
            raise ExecutionError(what, remedy=_REMEDY) from error


def _is_plain(dtype: np.dtype) -> bool:
    """Numbers, or what np.savez makes of bfloat16 and its like: bytes without a type."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.itemsize > 0 and dtype.names is dtype.subdtype is None)
