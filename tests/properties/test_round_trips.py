"""What comes in goes out and comes in again: text, proto, and the prepared module, on random modules of every kind."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hlosharding.frontends import load, prepare
from hlosharding.ir import Module, verify
from tests.oracle.random_modules import random_module

SEEDS = st.integers(0, 100_000)


def told(module: Module) -> dict[str, tuple[Any, ...]]:
    """All that a module says of its instructions, by name."""
    return {
        i.name: (i.opcode, str(i.shape), [o.name for o in i.operands], str(module.sharding(i)), i.opaque, i.is_root)
        for i in module.instructions
    }


@given(SEEDS)
def test_text_and_proto_lose_nothing(seed: int) -> None:
    module = load(random_module(seed))
    verify(module)
    assert told(load(module.to_hlo_proto())) == told(module)
    assert told(load(module.to_hlo_text())) == told(module)


@given(SEEDS)
def test_a_prepared_module_is_sound_and_read_by_jaxlib(seed: int) -> None:
    module = prepare(load(random_module(seed)))
    verify(module)
    assert told(load(module.to_hlo_text())) == told(module)
    assert told(prepare(module)) == told(module)
