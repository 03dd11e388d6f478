"""Every sharding in a program text, found and checked before jaxlib parses the text.

Floor: frontends.  jaxlib aborts the process on some malformed shardings and accepts others silently, so this scanner
finds each one (HLO: `sharding={...}` and the ends of a `domain`; StableHLO: `mhlo.sharding = "..."`) and hands it to
our own parser.  It knows strings, comments and balanced braces of those texts, and nothing else of their grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from hlosharding.errors import LoadError, ShardingError, ShardingParseError
from hlosharding.sharding import HloSharding

# What may hide the word `sharding=` comes first: strings, then comments.  Each pattern takes an unclosed one up to the
# end of the text, and gives nothing back (atomic groups): so the time is linear, on garbage too.  Runs of plain
# characters are one repeat: a constant is a string of gigabytes, and a repeated group would remember each character.
_STRING = r'(?>"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z))'
_BLOCK_COMMENT = r"(?>/\*.*?(?:\*/|\Z))"
_LINE_COMMENT = r"//[^\n]*"
_NUMBERS = rf'\bconstant\([^)"/]*+(?:(?:{_BLOCK_COMMENT}|{_LINE_COMMENT}|/)[^)"/]*+)*+'
_HLO_WORDS = re.compile(
    # So are the numbers of a constant, which hold none of all that.
    rf"{_STRING}|{_BLOCK_COMMENT}|{_LINE_COMMENT}|{_NUMBERS}"
    # An attribute follows a comma; an instruction may be called sharding, too.
    rf"|,(?>(?:\s|{_BLOCK_COMMENT}|{_LINE_COMMENT})*)(?P<key>sharding|entry|exit)\s*=\s*(?P<open>\{{)?",
    re.DOTALL,
)
_STABLEHLO_WORDS = re.compile(
    rf'{_LINE_COMMENT}|(?P<key>mhlo\.sharding)"?\s*=\s*"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)"|{_STRING}', re.DOTALL
)
_STATED_PARTITIONS = re.compile(rf"{_LINE_COMMENT}|{_STRING}|mhlo\.num_partitions\s*=\s*(?P<count>\d+)", re.DOTALL)
_BRACES = re.compile(rf"{_STRING}|[{{}}]", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def scan_hlo(text: str) -> list[HloSharding]:
    """All shardings of an HLO text, each checked.  Raises LoadError with line and column of the first bad one.

    >>> scan_hlo('ROOT %x = f32[4] parameter(0), sharding={devices=[2]<=[2]}')
    [HloSharding('{devices=[2]<=[2]}')]
    >>> scan_hlo('  ROOT %x = f32[4] parameter(0), sharding={devices=[2]0}')
    Traceback (most recent call last):
        ...
    hlosharding.errors.LoadError: bad sharding {devices=[2]0}: ...; at line 1, column ...
    """
    return [_checked(text, position, spelled, spelled) for position, spelled in _hlo_shardings(text)]


def scan_stablehlo(text: str) -> list[HloSharding]:
    """All `mhlo.sharding` strings of a StableHLO text, each checked; an empty one is XLA's default, replicated.

    >>> scan_stablehlo('%arg0: tensor<4xf32> {mhlo.sharding = "{replicated}"}')
    [HloSharding('{replicated}')]
    """
    found = [m for m in _STABLEHLO_WORDS.finditer(text) if m["key"] and m["text"]]
    return [_checked(text, m.start("text"), m["text"], _ESCAPE.sub(_unescape, m["text"])) for m in found]


def stated_partitions(text: str) -> int:
    """What a StableHLO text says of how many devices it is for; 1 where it says nothing.

    >>> stated_partitions("module @m attributes {mhlo.num_partitions = 8 : i32} {}")
    8
    """
    # Most texts say it in their first lines; of one that does not, however long, nothing is read twice.
    words = _STATED_PARTITIONS.finditer(text if "mhlo.num_partitions" in text else "")
    return next((int(word["count"]) for word in words if word["count"]), 1)


def _hlo_shardings(text: str) -> Iterator[tuple[int, str]]:
    for match in _HLO_WORDS.finditer(text):
        if match["key"] is None or not (match["open"] or match["key"] == "sharding"):
            continue
        if match["key"] != "sharding" and not _is_domain_end(text, match.start("key")):
            continue
        if match["open"] is None:
            raise LoadError(
                "sharding= is not followed by {...}", where=place(text, match.end()), remedy="write sharding={...}"
            )
        start = match.start("open")
        yield start, text[start : _closing_brace(text, start)]


def _is_domain_end(text: str, position: int) -> bool:
    # `entry=` and `exit=` hold shardings only inside domain={kind="sharding", entry=..., exit=...}.
    line = text.rfind("\n", 0, position) + 1
    return "domain={" in text[line:position]


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for match in _BRACES.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    raise LoadError("a sharding is not closed", where=place(text, start), remedy="add the missing }")


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 16)) if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)


def _checked(text: str, position: int, spelled: str, meant: str) -> HloSharding:
    try:
        return _parse(meant)
    except ShardingError as error:
        offset = error.position if isinstance(error, ShardingParseError) and spelled == meant else 0
        shown = spelled if len(spelled) <= 120 else spelled[:117] + "..."
        raise LoadError(
            f"bad sharding {shown}: {error.what}", where=place(text, position + offset), remedy=error.remedy
        ) from error


@lru_cache(maxsize=4096)
def _parse(text: str) -> HloSharding:
    return HloSharding.parse(text)


def place(text: str, position: int) -> str:
    """Line and column, counted from 1, of an offset.

    >>> place("ab\\ncd", 4)
    'line 2, column 2'
    """
    before = text.count("\n", 0, position)
    column = position - (text.rfind("\n", 0, position) + 1)
    return f"line {before + 1}, column {column + 1}"
