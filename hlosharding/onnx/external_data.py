"""Values that lie in files beside a model: read from its own folder, and from nowhere else.

Floor: onnx.  What onnx reads when it is asked for a tensor's values lies in the current folder; here every tensor
of a model gets its bytes before anybody asks.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_bytes
from hlosharding.onnx.protos import all_tensors

T = TypeVar("T")
_BESIDE = "load the model by its path, or read them first with onnx.load"


def read_external_data(model: Any, path: Path | None) -> None:
    """Puts the bytes of every tensor that names a file into the model.  `path`: of the model; None: it has no folder.

    Raises LoadError for files outside of the folder, links out of it among them, and for what is not in a file.
    """
    outside = [tensor for tensor in all_tensors(model) if tensor.data_location == tensor.EXTERNAL]
    if not outside:
        return
    if path is None:
        raise LoadError(
            f"the values of {outside[0].name!r} ({len(outside)} weights in all) lie in files beside the model",
            remedy=_BESIDE,
        )
    # All are looked up, and charged, before the first byte is read.
    regions = [_told(tensor, partial(_region, path)) for tensor in outside]
    _charge(regions)
    for tensor, region in zip(outside, regions, strict=True):
        tensor.raw_data = _told(tensor, region.read)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


class _ByteRange(NamedTuple):
    """Bytes of a file."""

    file: Path
    offset: int
    length: int
    size: int
    """Of the file."""

    def read(self, tensor: Any) -> bytes:
        del tensor
        with self.file.open("rb") as opened:
            opened.seek(self.offset)
            return opened.read(self.length)


def _told(tensor: Any, find: Callable[[Any], T]) -> T:
    """What is found of a tensor.  Raises LoadError that names it."""
    where = f"tensor {tensor.name!r}"
    try:
        return find(tensor)
    except LoadError as error:
        raise LoadError(f"external data: {error.what}", where=where, remedy=error.remedy) from error
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise LoadError(f"external data cannot be read: {error}", where=where) from error


def _region(model: Path, tensor: Any) -> _ByteRange:
    said = {entry.key: entry.value for entry in tensor.external_data}
    file = _inside(said.get("location", ""), model)
    size = file.stat().st_size
    offset = _number("offset", said.get("offset", "0"))
    length = _number("length", said["length"]) if "length" in said else max(0, size - offset)
    if offset + length > size:
        raise LoadError(f"bytes {offset:,} to {offset + length:,} of {said['location']!r}, which has {size:,}")
    return _ByteRange(file, offset, length, size)


def _charge(regions: Sequence[_ByteRange]) -> None:
    """Bytes of a file are free once; tensors that share them are copies."""
    sizes = {region.file: region.size for region in regions}
    read = Counter[Path]()
    for region in regions:
        read[region.file] += region.length
    charge_bytes(sum(max(0, read[file] - size) for file, size in sizes.items()))


def _inside(location: str, model: Path) -> Path:
    """The file of that name in the model's folder.

    Where the model's name is a link, the folder of the file behind it counts, too: so caches of downloads are built.
    """
    # Links are followed before the folder is compared: one in it may lead out of it.
    file = (model.parent / location).resolve()
    is_relative = location and not Path(location).is_absolute() and ".." not in Path(location).parts
    if not is_relative or not any(map(file.is_relative_to, (model.parent.resolve(), model.resolve().parent))):
        raise LoadError(f"{location!r} is not in the folder of the model", remedy="put it beside the model")
    # Of a pipe there is no size to hold `offset` and `length` to, and opening one may wait without end.
    if not stat.S_ISREG(file.stat().st_mode):
        raise LoadError(f"{location!r} is no file")
    return file


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise LoadError(f"{key} {text[:40]!r} is no number of bytes")
    return int(text)
