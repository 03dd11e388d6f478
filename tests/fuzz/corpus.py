"""Inputs that a reader once could not stand, a small file each: the text itself, or its bytes in hexadecimal."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def keep(name: str, data: bytes) -> Path:
    """Write an input beside those that are there."""
    is_text = data.isascii() and all(byte >= 32 or byte == 10 for byte in data)
    path = CORPUS / name / f"{sha256(data).hexdigest()[:16]}.{'txt' if is_text else 'hex'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if is_text else data.hex(" ", 32).replace(" ", "\n").encode())
    return path


def kept() -> Iterator[tuple[str, Path]]:
    """Each with its target."""
    for path in sorted(CORPUS.glob("*/*.*")):
        yield path.parent.name, path


def content(path: Path) -> bytes:
    """The input of a file."""
    data = path.read_bytes()
    return data if path.suffix == ".txt" else bytes.fromhex(data.decode())
