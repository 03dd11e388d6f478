"""Numbers as people read them: one spelling for counts, bytes and seconds in every table.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB")
_LARGE_UNITS = ("", "k", "M", "G", "T", "P")
_TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


_NOTHING = 0.5e-9
"""Shorter than half a nanosecond: what remains of an op that costs nothing."""


def as_count(value: float) -> str:
    """All digits, so that two tables can be compared.

    >>> as_count(2103808.0)
    '2,103,808'
    """
    return f"{value:,.0f}"


def as_bytes(value: float) -> str:
    """Bytes in decimal units, three digits.

    >>> as_bytes(40964), as_bytes(12), as_bytes(3.2e15)
    ('41.0 kB', '12 B', '3,200 TB')
    """
    return _in_units(value, _BYTE_UNITS)


def as_large(value: float) -> str:
    """A count in decimal units, three digits.

    >>> as_large(2.1e12), as_large(12)
    ('2.10 T', '12')
    """
    return _in_units(value, _LARGE_UNITS).rstrip()


def _in_units(value: float, units: Sequence[str]) -> str:
    unit = 0
    while abs(value) >= 1000 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{_three_digits(value) if unit else f'{value:,.0f}'} {units[unit]}"


def as_seconds(value: float) -> str:
    """Seconds, milliseconds or microseconds, three digits.

    >>> as_seconds(0.0515e-3), as_seconds(2.5), as_seconds(0.0)
    ('51.5 us', '2.50 s', '0 s')
    """
    if abs(value) < _NOTHING:
        return "0 s"
    unit, size = next((u for u in _TIME_UNITS if abs(value) >= u[1]), _TIME_UNITS[-1])
    return f"{_three_digits(value / size)} {unit}"


def _three_digits(value: float) -> str:
    size = abs(value)
    # By what is written, not by the value: 9.995 with two digits would be 10.00.
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:,.{digits}f}"
