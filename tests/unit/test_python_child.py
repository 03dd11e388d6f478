"""Children of this process run no code that merely lies in the current folder."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from hlosharding import python_child, xla_process


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds modules named like ours and others', which would write a file."""
    ran = tmp_path / "ran"
    for name in ("hlosharding", "numpy", "jaxlib", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    return ran


def test_conversions_run_nothing_of_the_current_folder(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "", str(hostile.parent)])
    child = xla_process.Child()
    try:
        assert child.ask("hlo-text-to-proto", b"HloModule m\nENTRY e {\n  ROOT x = f32[3] parameter(0)\n}\n")
    finally:
        child.close()
    assert not hostile.exists()


def test_a_child_finds_modules_where_its_parent_does(hostile: Path) -> None:
    assert os.path.realpath(hostile.parent) not in map(os.path.realpath, python_child.own_path())
    with tempfile.TemporaryFile() as errors:
        process = python_child.start("hlosharding.search.price_workers", "serve", python_child.own_path(), errors)
        process.communicate(b"no pickle", timeout=60)
        errors.seek(0)
        assert b"UnpicklingError" in errors.read()
    assert not hostile.exists()
