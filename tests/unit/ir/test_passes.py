"""Passes run in order, are checked on demand, and leave their texts in a folder on demand."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlosharding as hs
from hlosharding.errors import ModuleError
from hlosharding.ir import Module, Pass, Property, run_passes

TEXT = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(x)\n}"


def rename(module: Module) -> None:
    module.by_name("y").name = "z"


def must_be_renamed(module: Module) -> None:
    if module.entry.root.name != "z":
        raise ModuleError("the root has its old name")


RENAMED = Property("the root is renamed", must_be_renamed)
RENAME = Pass(name="rename", run=rename, ensures=(RENAMED,))
NOTHING = Pass(name="nothing", run=lambda _: None, requires=(RENAMED,))


def test_passes_run_in_order() -> None:
    module = hs.load(TEXT)
    run_passes(module, [RENAME, NOTHING], check=True)
    assert module.entry.root.name == "z"


def test_a_pass_that_comes_too_early_is_refused() -> None:
    with pytest.raises(ModuleError, match="pass nothing requires that the root is renamed, which no pass before it"):
        run_passes(hs.load(TEXT), [NOTHING, RENAME])


def test_a_pass_that_does_not_keep_its_word_is_found() -> None:
    liar = Pass(name="liar", run=lambda _: None, ensures=(RENAMED,))
    run_passes(hs.load(TEXT), [liar])
    with pytest.raises(ModuleError, match="old name"):
        run_passes(hs.load(TEXT), [liar], check=True)


def test_the_program_is_dumped_before_and_after_each_pass(tmp_path: Path) -> None:
    run_passes(hs.load(TEXT), [RENAME, NOTHING], dump=tmp_path / "new")
    texts = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert sorted(texts) == ["00_before.hlo", "01_rename.hlo", "02_nothing.hlo"]
    assert "ROOT %y" in texts["00_before.hlo"]
    assert "ROOT %z" in texts["01_rename.hlo"]
    assert all(hs.load(text, format="hlo") for text in texts.values())
