"""Makes a module smaller as long as it still shows what it showed: lines, annotations and results go one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_NAME = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = ")
_SHARDING = re.compile(r", sharding=(\{\{.*?\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)?\})")
_ATTEMPTS = 400


def shrink(hlo: str, shows: Callable[[str], bool]) -> str:
    """The smallest module found for which `shows` still holds."""
    left, smaller = _ATTEMPTS, True
    while smaller:
        smaller = False
        for candidate in _smaller(hlo):
            left -= 1
            if left < 0:
                return hlo
            if shows(candidate):
                hlo, smaller = candidate, True
                break
    return hlo


def _smaller(hlo: str) -> Iterator[str]:
    """Every module with one thing less; the biggest steps first."""
    lines = hlo.splitlines()
    yield from _fewer_results(lines)
    for n in reversed(range(len(lines))):
        found = _NAME.match(lines[n])
        if found and "ROOT" not in lines[n] and " parameter(" not in lines[n]:
            name = re.compile(rf"%{re.escape(found.group(1))}(?![\w.\-])")
            if not any(name.search(line) for k, line in enumerate(lines) if k != n):
                yield "\n".join(lines[:n] + lines[n + 1 :]) + "\n"
    for n, line in enumerate(lines):
        bare = _SHARDING.sub("", line)
        if bare != line and 'custom_call_target="Sharding"' not in line:
            yield "\n".join([*lines[:n], bare, *lines[n + 1 :]]) + "\n"


def _fewer_results(lines: list[str]) -> Iterator[str]:
    """The entry's root with one value only."""
    n = max((k for k, line in enumerate(lines) if line.lstrip().startswith("ROOT")), default=None)
    if n is None:
        return
    values = re.findall(r"%([\w.\-]+)", lines[n].partition("(%")[2] and "(%" + lines[n].partition("(%")[2])
    for value in dict.fromkeys(values) if len(values) > 1 else ():
        shape = next((line.split(" = ")[1].split(" ")[0] for line in lines if f"%{value} = " in line), "")
        if "[" in shape and "(" not in shape:
            yield "\n".join([*lines[:n], f"  ROOT %root = ({shape}) tuple(%{value})", *lines[n + 1 :]]) + "\n"
