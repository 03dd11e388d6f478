"""A stranger's program is data: whatever stands in its strings, the source that we write is the same program."""

from __future__ import annotations

import ast

import pytest

import hlosharding as hs
from hlosharding.executor.text import block_text, identifier
from tests.support.hostile_text import HOSTILE, propagated_program, taken


@pytest.fixture(scope="module")
def program() -> bytes:
    return propagated_program()


def shape_of(source: str) -> list[str]:
    """The source's tree without names and literals, which may differ."""
    return [type(node).__name__ for node in ast.walk(ast.parse(source))]


def source_of(proto: bytes) -> str:
    module = hs.load(proto, format="hlo-proto")
    return hs.partition(module, num_partitions=8).as_python()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_string_of_a_module_becomes_code(program: bytes, text: str) -> None:
    wanted = shape_of(source_of(program))
    written = taken(program, text, source_of)
    for kind, source in written.items():
        assert shape_of(source) == wanted, kind
    assert len(written) > 5


def test_letters_that_python_reads_as_others_are_one_name() -> None:
    assert identifier("ﬁ") == identifier("fi") == "fi"
    assert identifier("x²") == "x2"
    assert identifier("α") == "α"
    assert all(identifier(text).isidentifier() for text in HOSTILE)


@pytest.mark.parametrize("text", [*HOSTILE, 'ends with "', "plain\nlines"])
def test_a_block_of_text_is_itself(text: str) -> None:
    assert ast.literal_eval(block_text(text)).strip("\n") == text.strip("\n")
