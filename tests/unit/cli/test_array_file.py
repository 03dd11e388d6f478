"""Archives of strangers: one line of ours, and no memory for what they only claim to hold."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cli.array_file import ArrayFile
from hlosharding.cli.arrays import read_arrays

PARAMETERS = hs.load("HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n").entry.parameters


def saved(array: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.save(data, array)
    return data.getvalue()


def archive(content: bytes, compression: int = zipfile.ZIP_STORED, name: str = "arr_0.npy") -> bytearray:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as file:
        file.writestr(name, content)
    return bytearray(data.getvalue())


def changed(data: bytearray, local: int, central: int, value: int) -> bytearray:
    """With another number in both headers of the member."""
    for mark, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = data.find(mark) + offset
        data[at : at + 2] = struct.pack("<H", value)
    return data


def headed(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytearray:
    text = header.encode() + b"\n"
    return archive(b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(text)) + text + content)


def of(descr: str, shape: str, content: bytes = b"") -> bytearray:
    return headed(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", content)


def damaged() -> bytearray:
    data = archive(saved(np.ones(4, np.float32)), zipfile.ZIP_DEFLATED)
    at = data.find(b"arr_0.npy") + 9
    data[at : at + 12] = b"\xff" * 12
    return data


GOOD = saved(np.ones(4, np.float32))
CASES = {
    "damaged deflate": (damaged(), "cannot read arr_0"),
    "damaged content": (archive(GOOD).replace(b"\x80?", b"\x80@", 1), "cannot read arr_0"),
    "encrypted": (changed(archive(GOOD), 6, 8, 1), "encrypted"),
    "unknown compression": (changed(archive(GOOD), 8, 10, 97), "not supported"),
    "no array in it": (archive(b"hello"), "cannot read arr_0"),
    "nothing in it": (archive(b""), "cannot read arr_0"),
    "another name": (archive(GOOD, name="y" * 10_000 + ".npy"), "has no array"),
    "a folder": (archive(b"", name="arr_0.npy/"), "has no array"),
    "deep header": (headed("{'descr': " + "[" * 3000), "cannot read arr_0"),
    "no header": (headed("print()"), "cannot read arr_0"),
    "later version": (headed("", version=b"\x02\x00"), "unknown version"),
    "objects": (of("'|O'", "(4,)", b"x" * 32), "no array of numbers"),
    "text": (of("'<U4'", "(4,)", b"x" * 64), "no array of numbers"),
    "structure": (of("[('a', '<f4')]", "(4,)", b"x" * 16), "no array of numbers"),
    "arrays in it": (of("('<f4', (4,))", "(1,)", b"x" * 16), "arr_0"),
    "nothing many times": (of("'|V0'", "(1000000000000,)"), "no array of numbers"),
    "negative": (of("'<f4'", "(-2, -2)", b"x" * 16), "no array of numbers"),
    "claims": (of("'<f4'", "(1000000000000,)", b"x" * 16), "has not the bytes"),
    "too much": (of("'<f4'", "(4,)", b"x" * 20), "has not the bytes"),
    "another shape": (archive(saved(np.ones(5, np.float32))), "the program takes f32[4]"),
    "another type": (archive(saved(np.ones(4, np.complex64))), "the program takes f32[4]"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_in_a_line_of_ours(case: str, tmp_path: Path) -> None:
    data, says = CASES[case]
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(hs.ExecutionError) as refused:
        read_arrays(PARAMETERS, str(tmp_path / "x.npz"))
    assert says in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + b"\0" * 18, b"PK\x05\x06" + b"\xff" * 18])
def test_what_is_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(hs.ExecutionError):
        read_arrays(PARAMETERS, str(tmp_path / "x.npz"))
    with pytest.raises(hs.ExecutionError):
        ArrayFile(str(tmp_path / "none.npz"))
    with pytest.raises(hs.ExecutionError):
        ArrayFile("a\0b")


def test_zeros_that_the_program_does_not_take_take_no_memory(tmp_path: Path) -> None:
    zeros = archive(saved(np.zeros(1 << 24, np.float32)), zipfile.ZIP_DEFLATED)
    (tmp_path / "x.npz").write_bytes(zeros)
    tracemalloc.start()
    try:
        with pytest.raises(hs.ExecutionError, match="takes f32"):
            read_arrays(PARAMETERS, str(tmp_path / "x.npz"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_taken_unseen_is_what_has_a_size_to_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", a=np.ones(4, np.float32), b=np.asfortranarray(np.arange(6).reshape(2, 3)))
    file = ArrayFile(str(tmp_path / "x.npz"))
    assert {name: array.tolist() for name, array in file.read_all().items()} == {
        "a": [1.0] * 4,
        "b": [[0, 1, 2], [3, 4, 5]],
    }
    monkeypatch.setattr("hlosharding.cli.array_file._MOST_BYTES", 100)
    with pytest.raises(hs.ExecutionError, match="have 320 bytes"):
        file.read_all()
