"""MLIR's strings and symbols: `"a\\22b"`, `@mesh`, `@"my mesh"`.

Floor: sharding.
"""

from __future__ import annotations

import re

from hlosharding.sharding.scanner import Scanner

_STRING = re.compile(r'"((?:[^"\\\n]++|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_BARE = re.compile(r"[A-Za-z_$.0-9-]++")
_PLAIN_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_LETTERS = {"n": "\n", "t": "\t"}


def read_string(scan: Scanner, what: str) -> str:
    """The next string in double quotes, or fail.

    >>> read_string(Scanner('"a\\\\22b"'), "a name")
    'a"b'
    """
    start = scan.skip()
    match = _STRING.match(scan.text, start)
    if match is None:
        scan.fail(f"expected {what} in double quotes", at=start)
    scan.position = match.end()
    raw = _ESCAPE.sub(_byte, match.group(1))
    try:
        return raw.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:
        scan.fail(f"{what} that is no UTF-8", at=start)


def _byte(match: re.Match[str]) -> str:
    escaped = match.group(1)
    if len(escaped) == 2:
        # A letter outside ASCII comes as several such bytes: surrogates hold each until all of them are read.
        return bytes([int(escaped, 16)]).decode("utf-8", "surrogateescape")
    return _LETTERS.get(escaped, escaped)


def write_string(text: str) -> str:
    """As MLIR prints it: quotes and what is no printable ASCII as hexadecimal bytes.

    >>> write_string('a"b')
    '"a\\\\22b"'
    """
    return '"' + "".join(map(_written, text.encode("utf-8", "surrogateescape"))) + '"'


def _written(byte: int) -> str:
    if byte == ord("\\"):
        return "\\\\"
    return chr(byte) if 0x20 <= byte < 0x7F and byte != ord('"') else f"\\{byte:02X}"


def read_symbol(scan: Scanner) -> str:
    """`@mesh` or `@"my mesh"`, or fail."""
    scan.expect("@")
    return read_name(scan)


def read_name(scan: Scanner) -> str:
    """A name, bare or in quotes, or fail."""
    if scan.looking_at('"'):
        return read_string(scan, "a name")
    match = _BARE.match(scan.text, scan.skip())
    if match is None:
        scan.fail("expected a name")
    scan.position = match.end()
    return match.group()


def write_symbol(name: str) -> str:
    """`@mesh`, quoted where need be."""
    return "@" + (name if _PLAIN_SYMBOL.fullmatch(name) else write_string(name))
