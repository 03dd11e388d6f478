"""TOML and JSON of strangers: read in time that grows with the text, to values that can be shown and written."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hlosharding.errors import CostError, HloShardingError
from hlosharding.small_files import parsed_json, parsed_toml
from hlosharding.whole_files import write_whole

LONG_KEY = "a" + ".a" * 70 + " = 1"

READ = (
    "x = [" + "1.5, " * 100 + "]",
    f'x = """\n{LONG_KEY}\n"""',
    f"x = '''\n{LONG_KEY}\n'''",
    f"# {LONG_KEY}",
    f"x = '{LONG_KEY}' # {LONG_KEY}",
    r'x = "\"" ' + f"# '{LONG_KEY}",
    "x = 0x7fffffffffffffff",
)


@pytest.mark.parametrize("text", READ)
def test_dots_outside_of_keys_are_nobodys_business(text: str) -> None:
    assert len(parsed_toml("the text", text, HloShardingError)) == (not text.startswith("#"))


REFUSED = (
    LONG_KEY,
    f"x = '''\n'''\n{LONG_KEY}",
    "x = 1 # '''\n" + LONG_KEY,
    "a" + " . 'a.b'" * 70 + " = 1",
    'x = """' + '\\"""\n' * 50_000,
    'x = "' + '\\"' * 100_000,
    "x = '''" + "''\n" * 100_000,
    "a" * 100_000,
    ("a" + " " * 1000) * 200,
    "x = 0x8000000000000000",
    "x = [{a = [[0x" + "f" * 5000 + "]]}]",
    "x = " + "9" * 5000,
)


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(CostError):
        parsed_toml("the text", text, CostError)
    assert time.process_time() - began < 1


NOT_IN_TOML = (
    '{"a": "\\ud800"}',
    '{"\\udfff": 1}',
    '{"a": [1, {"b": Infinity}]}',
    '{"a": 1, "a": 2}',
    '{"a": 9223372036854775808}',
)


@pytest.mark.parametrize("text", NOT_IN_TOML)
def test_json_says_what_toml_can_say(text: str) -> None:
    with pytest.raises(CostError):
        parsed_json("the text", text, CostError)


def test_half_a_letter_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(HloShardingError, match="no character"):
        write_whole(tmp_path / "x", "a\ud800")
    assert not list(tmp_path.iterdir())
