"""Inputs that are nearly valid: seeds, changed a few times by byte, line, token and word of the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.fuzz.target import LONGEST, Target

_TOKEN = re.compile(rb"[A-Za-z_]\w*|-?\d+|\s+|.", re.DOTALL)
_NUMBER = re.compile(rb"\d+")
_NUMBERS = (
    *(str(number).encode() for number in (0, 1, -1, 10**9, 2**20 + 1, 2**31, 2**63, 10**400)),
    *(b"1e999", b"nan", b"9" * 5000),
)
_WORDS = (
    *(bytes([letter]) for letter in b"{}[]()<>'\"\\=,:*?\n\0\xff "),
    *(b"/*", b"*/", b"", b"None", b"true", b"\xed\xa0\x80", "\u0663\u2028\u00b2".encode()),
)
_MOST_CHANGES = 5
_MOST_REPEATS = 3000

Change = Callable[[bytes, Random, Target], bytes]


def mutated(target: Target, random: Random) -> bytes:
    """An input for a target; the same for equal numbers."""
    data = random.choice(target.seeds)
    if target.change is not None:
        return target.change(data, random)
    for _ in range(random.randint(0, _MOST_CHANGES)):
        data = random.choice(_CHANGES)(data, random, target)[:LONGEST]
    return data


def _part(data: bytes, random: Random, longest: int = 64) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.randint(0, longest))


def _byte(data: bytes, random: Random, target: Target) -> bytes:
    start, _ = _part(data, random)
    return data[:start] + bytes([random.randrange(256)]) + data[start + random.randint(0, 1) :]


def _without(data: bytes, random: Random, target: Target) -> bytes:
    start, end = _part(data, random)
    return data[:start] + data[end:]


def _repeated(data: bytes, random: Random, target: Target) -> bytes:
    start, end = _part(data, random, 8)
    return data[:end] + data[start:end] * random.choice((1, 2, 100, _MOST_REPEATS)) + data[end:]


def _moved(data: bytes, random: Random, target: Target) -> bytes:
    start, end = _part(data, random)
    rest = data[:start] + data[end:]
    at = random.randint(0, len(rest))
    return rest[:at] + data[start:end] + rest[at:]


def _spliced(data: bytes, random: Random, target: Target) -> bytes:
    other = random.choice(target.seeds)
    start, end = _part(other, random)
    at, until = _part(data, random, 16)
    return data[:at] + other[start:end] + data[until:]


def _lines(data: bytes, random: Random, target: Target) -> bytes:
    lines = data.split(b"\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(3):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            del lines[one]
        case _:
            lines.insert(other, lines[one])
    return b"\n".join(lines)


def _token(data: bytes, random: Random, target: Target) -> bytes:
    tokens = _TOKEN.findall(data) or [b""]
    tokens[random.randrange(len(tokens))] = random.choice((*_WORDS, *target.words, random.choice(tokens)))
    return b"".join(tokens)


def _number(data: bytes, random: Random, target: Target) -> bytes:
    places = [match.span() for match in _NUMBER.finditer(data)]
    if not places:
        return data + random.choice(_NUMBERS)
    start, end = random.choice(places)
    return data[:start] + random.choice((*_NUMBERS, str(random.randint(0, 20)).encode())) + data[end:]


_CHANGES: tuple[Change, ...] = (_byte, _without, _repeated, _moved, _spliced, _lines, _token, _token, _number, _number)
