"""Files are read whole or not at all, and written so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import hlosharding as hs
from hlosharding.cost import read_machine
from hlosharding.errors import CostError, LoadError, PlanError
from hlosharding.whole_files import read_whole, replacing, write_whole


def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("old")
    with suppress(KeyError), replacing(file) as draft:
        draft.write(b"ne")
        raise KeyError
    assert file.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    texts = [letter * 100_000 for letter in "abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_whole(tmp_path / "x", text), texts))
    assert (tmp_path / "x").read_text() in texts
    assert len(list(tmp_path.iterdir())) == 1


def test_a_name_as_long_as_can_be(tmp_path: Path) -> None:
    for name in ("x" * 255, "\N{SNOWFLAKE}" * 85):  # of 255 bytes each
        write_whole(tmp_path / name, b"bytes")
        assert (tmp_path / name).read_bytes() == b"bytes"


def test_what_cannot_be_read_is_the_error_wanted(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cannot read .*: Is a directory; at most one"):
        read_whole(tmp_path, PlanError, remedy="at most one")
    with pytest.raises(LoadError, match=r"not a path: 'a.x00b'"):
        read_whole("a\0b")
    (tmp_path / "x").write_bytes(b"12345")
    assert read_whole(tmp_path / "x", most=5) == b"12345"
    with pytest.raises(LoadError, match=r"more than 4 bytes"):
        read_whole(tmp_path / "x", most=4)


def test_a_machine_of_a_stranger_is_read_within_bounds(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text("a" + ".a" * 100_000 + " = 1")
    with pytest.raises(CostError, match=r"line 1; write at most 64 dots"):
        read_machine(file)
    file.write_bytes(b"name = '\xff'")
    with pytest.raises(CostError, match=r"no text.*byte 8"):
        read_machine(file)


def test_device_annotations_of_no_file() -> None:
    with pytest.raises(LoadError, match=r"cannot read no.onnx: No such file"):
        hs.read_onnx_shardings("no.onnx")
