"""XLA's dumps leave large constants out of their text: such programs are priced, but nobody runs made-up values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.cli import main
from hlosharding.errors import ExecutionError

TEXT = """HloModule m
ENTRY e {
  x = f32[16] parameter(0), sharding={devices=[8]<=[8]}
  %table = f32[16]{0} constant({...}), metadata={op_name="a"}
  ROOT y = f32[16] add(x, %table)
}
"""


def test_a_program_whose_text_left_values_out_is_priced_but_does_not_run(tmp_path: Path) -> None:
    for prepare in (False, True):
        local = hs.partition(hs.propagate(hs.load(TEXT, prepare=prepare)))
        assert local.cost.time_s > 0
        assert local.warnings == ("the text left out the values of constant %table: nothing can run",)
        for run in (local.run, local.run_reference):
            with pytest.raises(ExecutionError, match="left out the values of constant %table"):
                run(np.zeros(16, np.float32))
    path = tmp_path / "elided.hlo"
    path.write_text(TEXT)
    assert main(["convert", str(path), "--emit", "stablehlo"]) == 1


def test_values_that_are_there_run() -> None:
    text = TEXT.replace("{...}", f"{{{', '.join(map(str, range(16)))}}}").replace('"a"', '"constant({...})"')
    local = hs.partition(hs.propagate(hs.load(text)))
    np.testing.assert_array_equal(local.run(np.ones(16, np.float32)), np.arange(1.0, 17))
