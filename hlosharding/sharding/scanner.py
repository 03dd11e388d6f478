"""Read text token by token, in linear time, with the position of everything that cannot stand.

Floor: sharding.  Knows characters; nothing of what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.printable import is_writable
from hlosharding.sharding.tile_assignment import check_devices

# Possessive repetitions: a string that never ends must not cost more than one look.  ASCII, as XLA's lexer.
_SPACE = re.compile(r"\s*+", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_INTEGER = re.compile(r"-?[0-9]++")
_INTEGERS = re.compile(r"\s*+-?\d++(?:\s*+,\s*+-?\d++)*+", re.ASCII)
_STRING = re.compile(r""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MAX_DIGITS = 18
"""Of a number: it fits 64 bits, and Python takes quadratic time for longer ones."""


class Scanner:
    """A text and a position in it.

    >>> scan = Scanner("devices=[2, 3] /* note */ x")
    >>> scan.word(), scan.accept("="), scan.integers("[", "]"), scan.word()
    ('devices', True, (2, 3), 'x')
    """

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def fail(self, what: str, *, at: int | None = None, remedy: str | None = None) -> NoReturn:
        """Raise ShardingParseError at `at` (default: here)."""
        raise ShardingParseError(what, text=self.text, position=self.position if at is None else at, remedy=remedy)

    @contextmanager
    def failing(self, at: int) -> Iterator[None]:
        """What contradicts itself meanwhile stands at `at`: ShardingParseError."""
        try:
            yield
        except ShardingError as error:
            self.fail(error.what, at=at, remedy=error.remedy)

    def skip(self) -> int:
        """Past white space and comments; the new position."""
        while True:
            match = _SPACE.match(self.text, self.position)
            self.position = match.end() if match is not None else self.position
            if not self.text.startswith("/*", self.position):
                return self.position
            end = self.text.find("*/", self.position + 2)
            if end < 0:
                self.fail("a comment that never ends")
            self.position = end + 2

    def peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        at = self.skip()
        return self.text[at : at + 1]

    def looking_at(self, token: str) -> bool:
        """Does the rest start with `token`?"""
        return self.text.startswith(token, self.skip())

    def accept(self, token: str) -> bool:
        """Step over `token` if it is next."""
        if not self.looking_at(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str, after: str = "") -> None:
        """Step over `token`, or fail."""
        if not self.accept(token):
            found = repr(self.peek()) if self.peek() else "the end"
            self.fail(f"expected {token!r}{' after ' + after if after else ''}, found {found}")

    def until(self, closing: str, what: str) -> Iterator[None]:
        """Once for each item of a list, up to and past its closing bracket; commas stand after `what`.

        >>> scan = Scanner("1, 2] and more")
        >>> [scan.integer() for _ in scan.until("]", "a number")], scan.word()
        ([1, 2], 'and')
        """
        is_first = True
        while not self.accept(closing):
            if not is_first:
                self.expect(",", what)
            is_first = False
            yield

    def equals(self, word: str) -> None:
        """Step over the `=` that belongs to `word`: XLA allows nothing between the two."""
        if not self.text.startswith("=", self.position):
            self.fail(f"expected '=' right behind {word!r}")
        self.position += 1

    def word(self) -> str:
        """The next word; empty if there is none."""
        match = _WORD.match(self.text, self.skip())
        if match is None:
            return ""
        self.position = match.end()
        return match.group()

    def integer(self, what: str = "a number") -> int:
        """The next integer, or fail."""
        start = self.skip()
        match = _INTEGER.match(self.text, start)
        if match is None:
            self.fail(f"expected {what}, found {repr(self.peek()) if self.peek() else 'the end'}")
        self.position = match.end()
        return self._value(match.group(), start)

    def device(self) -> int:
        """The number of a device, or fail: XLA's text has negative ones, but no larger ones than there can be."""
        start = self.skip()
        found = self.integer("a device")
        with self.failing(start):
            check_devices(found + 1)
        return found

    def _value(self, digits: str, at: int) -> int:
        if len(digits) > _MAX_DIGITS:
            self.fail(f"a number of {len(digits)} digits", at=at)
        return int(digits)

    def integers(self, opening: str, closing: str, after: str = "") -> tuple[int, ...]:
        """A bracketed list of at least one integer."""
        self.expect(opening, after)
        values = self.open_integers()
        self.expect(closing, "the list")
        return values

    def open_integers(self) -> tuple[int, ...]:
        """Integers between commas, at least one."""
        start = self.skip()
        match = _INTEGERS.match(self.text, start)
        if match is None:
            self.integer()
            raise AssertionError("unreachable: integer() has failed")
        self.position = match.end()
        digits = match.group().split(",")
        if max(map(len, digits)) > _MAX_DIGITS:
            self.fail("a number with too many digits", at=start)
        return tuple(map(int, digits))

    def is_string(self) -> bool:
        """Is a quoted string next?"""
        return self.peek() in ("'", '"')

    def string(self, what: str = "a quoted name") -> str:
        """The next string in single or double quotes, escapes resolved, or fail."""
        start = self.skip()
        match = _STRING.match(self.text, start)
        if match is None:
            self.fail(f"{what} that never ends" if self.is_string() else f"expected {what} in quotes", at=start)
        if not is_writable(match.group()):
            self.fail(f"{what} with half a letter", at=start)
        self.position = match.end()
        return _ESCAPE.sub(lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), match.group()[1:-1])
