"""Machines by short names: presets with a number of devices, and files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlosharding.cost import machine_for, machine_presets, machines, parse_machine, preset_text
from hlosharding.errors import CostError


@pytest.mark.parametrize("name", machine_presets())
def test_every_preset_comes_back_from_its_name(name: str) -> None:
    made = machine_presets()[name](8)
    text = preset_text(made)
    assert text is not None
    assert machine_for(parse_machine(text), 8) == made


def test_what_is_no_preset_has_no_name() -> None:
    assert preset_text(replace(machines.h100(8), memory_bytes=1e9)) is None


@pytest.mark.parametrize("text", ["h100:", "h100:0", "h100:-1", "h100:x", "h101", "", "h100:" + "9" * 5000])
def test_bad_names(text: str) -> None:
    with pytest.raises(CostError):
        parse_machine(text)
