"""What rides along on a sharding without changing its meaning: where it came from, and its shard group.

Floor: sharding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hlosharding.sharding.scanner import Scanner

STRINGS = ("op_type", "op_name", "source_file")
NUMBERS = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpMetadata:
    """Where a sharding came from, as XLA's OpMetadata says it; `rest` holds proto fields that we do not read.

    >>> str(OpMetadata(op_name="dot", source_file="model.py", source_line=31))
    'op_name="dot" source_file="model.py" source_line=31'
    """

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    rest: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        words = [f'{name}="{_escape(getattr(self, name))}"' for name in STRINGS if getattr(self, name)]
        return " ".join(words + [f"{name}={getattr(self, name)}" for name in NUMBERS if getattr(self, name)])


def _escape(text: str) -> str:
    # Backslashes first, or those that stand before quotes would be doubled.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """Membership in a group of values that are to be sharded exactly ("as") or roughly ("like") the same.

    >>> str(ShardGroup("as", 1))
    'shard_as 1'
    """

    kind: Literal["as", "like"]
    number: int

    def __str__(self) -> str:
        return f"shard_{self.kind} {self.number}"


# ---- read from text


def read_metadata(scan: Scanner) -> tuple[OpMetadata, ...]:
    """`={op_name="..." ...}`, or several of them in braces."""
    scan.equals("metadata")
    scan.expect("{", "metadata=")
    if not scan.looking_at("{"):
        return (_one_metadata(scan),)
    found: list[OpMetadata] = []
    while scan.accept("{"):
        found.append(_one_metadata(scan))
        if not scan.accept(","):
            break
    scan.expect("}", "the last metadata")
    return tuple(found)


def _one_metadata(scan: Scanner) -> OpMetadata:
    found: dict[str, Any] = {}
    while not scan.accept("}"):
        at = scan.skip()
        word = scan.word()
        if not word:
            scan.fail("expected a metadata field or '}'")
        if word in found:
            scan.fail(f"a second {word!r}", at=at)
        scan.equals(word)
        value = scan.string("text") if scan.is_string() else scan.integer("text or a number")
        if word not in (*STRINGS, *NUMBERS):
            scan.fail(f"unknown metadata field {word!r}", at=at)
        if isinstance(value, str) != (word in STRINGS):
            scan.fail(f"{word} takes {'text' if word in STRINGS else 'a number'}", at=at)
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            scan.fail(f"{word} takes a number of 32 bits", at=at)
        found[word] = value
    return OpMetadata(**found)
