"""Foreign text on a terminal: nothing in it moves the cursor, breaks a line or turns the direction of reading.

Ground.  Standard library only.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with what is no printable character spelled out.

    >>> print(printable("params['\x1b[2J']"))
    params['\x1b[2J']
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    r"""Likewise, but lines stay lines.

    >>> print(printable_lines("a\tb\nc"))
    a\tb
    c
    """
    return "\n".join(map(printable, text.splitlines()))


def is_writable(text: str) -> bool:
    r"""Can it be a file's?  JSON, and arguments of a process, may hold halves of letters that no encoding has.

    >>> is_writable("h\xe9"), is_writable("\ud800")
    (True, False)
    """
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
