"""Our counterparts of XLA's sharding propagation tests: what live XLA was recorded to answer, we answer too.

Compared are the shardings of all instructions in meaning, spelling and metadata, `changed`, and the text of errors.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

import pytest

from hlosharding import xla_bridge
from hlosharding.errors import HloShardingError, PropagationError
from hlosharding.ir import Instruction, Module
from hlosharding.propagation import Propagation, propagate
from hlosharding.sharding import HloSharding
from tests.xla_mirror.cases import RECORDED, Case, Run, all_cases

CASES = all_cases()


@cache
def recorded(topic: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{topic}.json").read_text())["answers"]


def expected(case: Case, run: Run) -> dict[str, Any]:
    return next(answer for answer in recorded(case.topic)[case.name] if str(run) in answer["runs"])


@lru_cache(maxsize=4)
def module(hlo: str) -> Module:
    return Module.from_proto(xla_bridge.hlo_text_to_proto(hlo))


def run_ours(case: Case, run: Run) -> Propagation:
    return propagate(module(case.hlo_for(run)), **run.options)


def same(ours: HloSharding | None, text: str | None) -> bool:
    """The same text, metadata included, and the same meaning."""
    if ours is None or text is None:
        return ours is text
    return ours.to_string(metadata=True) == text and ours == HloSharding.parse(text)


def copies(case: Case, found: Propagation) -> list[tuple[str, HloSharding | None]]:
    """The annotations that became copies: what they copy, and their shardings."""
    before = {i.name: i.opcode for i in module(case.hlo).instructions}

    def is_new(i: Instruction) -> bool:
        return i.opcode == "copy" and before.get(i.name) != "copy"

    def description(i: Instruction) -> str:
        return f"copy of {description(i.operands[0])}" if is_new(i) else i.name

    new = [(description(i), found.module.sharding(i)) for i in found.module.instructions if is_new(i)]
    return sorted(new, key=lambda pair: (pair[0], str(pair[1])))


def differences(case: Case, found: Propagation, answer: dict[str, Any]) -> dict[str, tuple[object, object]]:
    """Name -> (ours, XLA's), where they differ."""
    different: dict[str, tuple[object, object]] = {
        name: (found.shardings[name], text)
        for name, text in answer["shardings"].items()
        if not same(found.shardings[name], text)
    }
    ours, theirs = copies(case, found), answer["copies"]
    if [d for d, _ in ours] != [d for d, _ in theirs]:
        different["copies"] = (ours, theirs)
    elif wrong := [(o, t) for o, t in zip(ours, theirs, strict=True) if not same(o[1], t[1])]:
        different["shardings of copies"] = ([o for o, _ in wrong], [t for _, t in wrong])
    if found.changed != answer["changed"]:
        different["changed"] = (found.changed, answer["changed"])
    return different


def check(case: Case, run: Run) -> None:
    answer = expected(case, run)
    if answer.get("aborts"):
        # XLA dies of this module under these options; we answer, or refuse with a message.
        with suppress(HloShardingError):
            run_ours(case, run)
        return
    if "error" not in answer:
        assert differences(case, run_ours(case, run), answer) == {}, str(run)
        return
    with pytest.raises(PropagationError) as raised:
        run_ours(case, run)
    assert answer["error"] in str(raised.value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_live_xla_answered(case: Case) -> None:
    for run in case.runs:
        check(case, run)
