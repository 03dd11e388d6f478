"""Op metadata as it stands in a sharding's text: `={op_name="..." source_line=3}`.

Floor: sharding.
"""

from __future__ import annotations

from hlosharding.sharding.metadata import OpMetadata
from hlosharding.sharding.scanner import Scanner


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
    result = OpMetadata()
    seen: set[str] = set()
    while not scan.accept("}"):
        at = scan.skip()
        word = scan.word()
        if not word:
            scan.fail("expected a metadata field or '}'")
        if word in seen:
            scan.fail(f"a second {word!r}", at=at)
        seen.add(word)
        scan.equals(word)
        value = scan.string("text") if scan.is_string() else scan.integer("text or a number")
        try:
            result = result.with_word(word, value)
        except KeyError:
            scan.fail(f"unknown metadata field {word!r}", at=at)
        except TypeError as error:
            scan.fail(str(error), at=at)
    return result
