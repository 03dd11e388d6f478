"""Reads the modules that mirror XLA's propagation tests: `propagation/<topic>.hlo.txt`, ten to twenty cases in each.

A case is a header line and the computations of one module:

    // case <our name> mirrors <XLA's test> runs <words>[; <words>...]

Each `;` separates one set of the pass's options, as XLA's test has them.  Words: `not-spmd`, `cse`, `outputs`,
`parameters` (`=10` gives a vector of bools, `=?` stands for both ways), `propagate-metadata`, and `metadata`, which
stands for the four ways of XLA's tests: metadata propagated or not, present in the module or cleared from it.  Every
case also runs under all 32 combinations of the options.  A line `// note ...` below the header goes into README.md's
table.  Computations in front of a file's first case are shared: a case gets those that it names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded"

_HEADER = re.compile(r"^// case (\S+) mirrors (\S+)(?: runs (.*))?$", re.MULTILINE)
_COMPUTATION = re.compile(r"^%(\S+) .*?^}\n", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"^// note (.*)$", re.MULTILINE)
_METADATA = re.compile(r",? *metadata=\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


@dataclass(frozen=True, slots=True)
class Run:
    """One set of options, and whether metadata is taken out of the module first."""

    is_spmd: bool = True
    propagate_metadata: bool = False
    cse_prevention_only: bool = False
    to_outputs: tuple[bool, ...] = (False,)
    to_parameters: tuple[bool, ...] = (False,)
    cleared: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `hs.propagate`."""
        return {
            "is_spmd": self.is_spmd,
            "propagate_metadata": self.propagate_metadata,
            "cse_prevention_only": self.cse_prevention_only,
            "to_outputs": list(self.to_outputs),
            "to_parameters": list(self.to_parameters),
        }

    def __str__(self) -> str:
        words = [
            "" if self.is_spmd else "not-spmd",
            "cse" if self.cse_prevention_only else "",
            _vector_word("outputs", self.to_outputs),
            _vector_word("parameters", self.to_parameters),
            "propagate-metadata" if self.propagate_metadata else "",
            "cleared" if self.cleared else "",
        ]
        return " ".join(filter(None, words)) or "plain"


def _vector_word(name: str, bools: tuple[bool, ...]) -> str:
    return f"{name}={''.join('01'[b] for b in bools)}" if any(bools) else ""


_FLAGS: dict[str, tuple[dict[str, Any], ...]] = {
    "not-spmd": ({"is_spmd": False},),
    "cse": ({"cse_prevention_only": True},),
    "propagate-metadata": ({"propagate_metadata": True},),
    "metadata": tuple(
        {"propagate_metadata": given, "cleared": cleared} for given in (False, True) for cleared in (False, True)
    ),
}


def _ways(word: str) -> tuple[dict[str, Any], ...]:
    """What one word of a header asks for: the settings it stands for."""
    name, _, value = word.partition("=")
    if name in _FLAGS:
        return _FLAGS[name] if not value else ({}, *_FLAGS[name])
    vectors = [(False,), (True,)] if value == "?" else [tuple(bit == "1" for bit in value or "1")]
    return tuple({{"outputs": "to_outputs", "parameters": "to_parameters"}[name]: vector} for vector in vectors)


_EVERY_WAY = "not-spmd=? cse=? outputs=? parameters=? propagate-metadata=?"


def _runs(words: str) -> tuple[Run, ...]:
    """What the header asks for, then every combination of the options that it does not name."""
    found: list[Run] = []
    for option_set in (*words.split(";"), _EVERY_WAY):
        for settings in itertools.product(*map(_ways, option_set.split())):
            run = Run()
            for setting in settings:
                run = replace(run, **setting)
            found.append(run)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Case:
    """One module with the option sets under which it is propagated."""

    name: str
    mirrors: str
    topic: str
    runs: tuple[Run, ...]
    body: str

    @property
    def note(self) -> str:
        """What the table should say of this case."""
        return " ".join(_NOTE.findall(self.body))

    @cached_property
    def hlo(self) -> str:
        """The module's text."""
        return f"HloModule {self.name}\n\n{self.body}\n"

    def hlo_for(self, run: Run) -> str:
        """The module's text, without metadata where the run clears it."""
        return _METADATA.sub("", self.hlo) if run.cleared else self.hlo


def _with_shared(body: str, shared: dict[str, str]) -> str:
    """In front of a body, the shared computations that it names, or that those name."""
    wanted: list[str] = []
    waiting = [body]
    while waiting:
        names = re.findall(r"%([\w.]+)", waiting.pop())
        new = [n for n in dict.fromkeys(names) if n in shared and n not in wanted and f"\n%{n} {{" not in "\n" + body]
        wanted += new
        waiting += [shared[n] for n in new]
    return "".join(text + "\n" for name, text in shared.items() if name in wanted) + body


def cases_of(path: Path) -> Iterator[Case]:
    """The cases of one file, in its order."""
    text = path.read_text()
    headers = list(_HEADER.finditer(text))
    shared = {m.group(1): m.group(0) for m in _COMPUTATION.finditer(text[: headers[0].start()])}
    ends = [h.start() for h in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends, strict=True):
        name, mirrors, words = header.groups()
        body = _with_shared(text[header.end() : end].strip(), shared)
        yield Case(name, mirrors, path.name.removesuffix(".hlo.txt"), _runs(words or ""), body)


def all_cases() -> tuple[Case, ...]:
    """Every case of every topic; their names are unique."""
    found = tuple(c for path in sorted((FOLDER / "propagation").glob("*.hlo.txt")) for c in cases_of(path))
    names = [c.name for c in found]
    doubles = {n for n in names if names.count(n) > 1}
    if doubles:
        raise ValueError(f"case names used twice: {sorted(doubles)}")
    return found
