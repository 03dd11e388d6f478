"""Reads the modules that mirror XLA's partitioner tests: `<topic>.hlo.txt`.

    // module
    <an HLO module in which $names stand for shardings and sizes>
    // case <our name> mirrors <XLA's test> on <devices>[ with <name>=<value>; ...]
    // case ...

Every case fills in the module above it.  A line of HLO may end in `:: <sharding>`, written short: `[2,1]` for
{devices=[2,1]<=[2]}, `[2,1]1,0`, `[2,2]<=[2,2]T(1,0)`, `[2,1,2] R` with a replicated and `[2,1,2] {manual}` with a
manual tail, `R` replicated, `M` manual, `@1` one device, `A | B` a tuple.  Other lines:

    // note <for the table>
    // means                the same computation as one device runs it, where dropping the shardings does not say it
    // unrun <reason>       partitioned and counted, but not run
    // definite             parameters are positive definite matrices
    // random               numbers are drawn between two parameters: no two are equal, and devices agree on copies
    // exempt <reason>      XLA's own program is wrong, as a test shows by running it: its bytes are no yardstick

`regions.hlo.txt` holds computations that any module may name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

FOLDER = Path(__file__).parent

_SPLIT = re.compile(r"^// (module|case)\b *(.*)$", re.MULTILINE)
_CASE = re.compile(r"(\S+) mirrors (\S+) on (\d+)(?: with (.*))?$")
_REMARK = re.compile(r"^// (note|unrun|definite|random|exempt)\b *(.*)$", re.MULTILINE)
_COMPUTATION = re.compile(r"^(\w+) \{.*?^\}\n", re.MULTILINE | re.DOTALL)
_SHORT = re.compile(r" :: (.*)$", re.MULTILINE)
_TILED = re.compile(r"(\[[\d,]+\])([^ ]*)((?: \S.*)?)$")


def _leaf(text: str) -> str:
    """One sharding, without its braces."""
    if text in ("R", "M"):
        return {"R": "replicated", "M": "manual"}[text]
    if text.startswith("@"):
        return f"maximal device={text[1:]}"
    match = _TILED.fullmatch(text)
    if match is None:
        raise ValueError(f"no sharding: {text!r}")
    dims, devices, tail = match.groups()
    devices = devices or f"<=[{prod(map(int, dims[1:-1].split(',')))}]"
    tail = " last_tile_dim_replicate" if tail == " R" else f" last_tile_dims={tail[1:]}" if tail else ""
    return f"devices={dims}{devices}{tail}"


def spelled(text: str) -> str:
    """The sharding in HLO's words.

    >>> spelled("[2,1] | [1,2]1,0 R")
    '{{devices=[2,1]<=[2]}, {devices=[1,2]1,0 last_tile_dim_replicate}}'
    """
    leaves = [f"{{{_leaf(part.strip())}}}" for part in text.split("|") if part.strip()]
    return f"{{{', '.join(leaves)}}}" if "|" in text else leaves[0]


@dataclass(frozen=True)
class Case:
    """One module with its shardings and its number of devices."""

    name: str
    mirrors: str
    topic: str
    devices: int
    body: str
    meaning: str
    note: str
    unrun: str
    is_definite: bool
    is_random: bool
    exempt: str

    @property
    def hlo(self) -> str:
        """The module's text, shardings included."""
        return _module(self.name, self.body)

    @property
    def meaning_hlo(self) -> str | None:
        """What one device computes, where the case says it."""
        return _module(self.name, self.meaning) if self.meaning else None


def _regions() -> dict[str, str]:
    return {m.group(1): m.group(0) for m in _COMPUTATION.finditer((FOLDER / "regions.hlo.txt").read_text())}


def _module(name: str, body: str) -> str:
    named = [text for region, text in _regions().items() if re.search(rf"[={{]%?{region}\b", body)]
    text = _SHORT.sub(lambda m: f", sharding={spelled(m.group(1))}", "\n".join([*named, body]))
    return f"HloModule {name}\n\n{text}\n"


def _filled(body: str, words: str) -> str:
    for word in filter(None, (w.strip() for w in words.split(";"))):
        name, _, value = word.partition("=")
        body = re.sub(rf"\${re.escape(name)}(?!\w)", lambda _, v=value: v, body)
    if left := re.search(r"\$\w+", body):
        raise ValueError(f"{left.group(0)} is not given: {words}")
    return body


def cases_of(path: Path) -> Iterator[Case]:
    """The cases of one file, in its order."""
    text = path.read_text()
    marks = list(_SPLIT.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)]
    template = ""
    for mark, end in zip(marks, ends, strict=True):
        below = text[mark.end() : end].strip()
        if mark.group(1) == "module":
            template = below
            continue
        header = _CASE.fullmatch(mark.group(2).strip())
        if header is None:
            raise ValueError(f"{path.name}: {mark.group(0)}")
        name, mirrors, devices, words = header.groups()
        remarks = dict(_REMARK.findall(template + "\n" + below))
        body, _, meaning = _REMARK.sub("", _filled(template, words or "")).partition("// means\n")
        yield Case(
            name, mirrors, path.name.removesuffix(".hlo.txt"), int(devices), body.strip(), meaning.strip(),
            remarks.get("note", ""), remarks.get("unrun", ""), "definite" in remarks, "random" in remarks,
            remarks.get("exempt", ""),
        )  # fmt: skip


def all_cases() -> tuple[Case, ...]:
    """Every case of every topic; their names are unique."""
    paths = sorted(p for p in FOLDER.glob("*.hlo.txt") if p.name != "regions.hlo.txt")
    found = tuple(case for path in paths for case in cases_of(path))
    names = [c.name for c in found]
    if doubles := {n for n in names if names.count(n) > 1}:
        raise ValueError(f"case names used twice: {sorted(doubles)}")
    return found
