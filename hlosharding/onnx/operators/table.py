"""The table of operators: name, the version that is written here, the function.

Floor: onnx.  A function's positional parameters are the operator's inputs in ONNX's order (None: left out), its
keyword parameters the attributes, with ONNX's defaults; `node` beside them gives what else the node says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from hlosharding.onnx.protos import MICROSOFT
from hlosharding.registry import Registry

__all__ = ["MICROSOFT", "OLD", "OPERATORS", "MustBeKnown", "Operator", "operator"]
F = TypeVar("F", bound=Callable[..., Any])
OLD = "hlosharding.old"
"""The domain of operators as ONNX had them once, where its converter gives their nodes another meaning."""


class MustBeKnown(Exception):
    """Raised by a function that needs the value of one of its inputs, and got a traced array."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        """Of the function's parameter."""


@dataclass(frozen=True)
class Operator:
    """One operator in one version."""

    domain: str
    name: str
    since: int
    """The opset in which ONNX last changed it."""
    function: Callable[..., Any]
    static: frozenset[str]
    """Inputs whose values must be known while tracing: they decide shapes."""
    known: frozenset[str]
    """Inputs that are numpy arrays where their values are known; all others are JAX's arrays, known or not."""

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs; the last of them takes all further ones if `is_variadic`."""
        kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
        return tuple(name for name, p in self._parameters.items() if p.kind in kinds)

    @cached_property
    def is_variadic(self) -> bool:
        return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in self._parameters.values())

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes that the function reads, `node` among them where it asks for it."""
        return frozenset(n for n, p in self._parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY)

    def is_static(self, position: int) -> bool:
        """Must the input at `position` be known?"""
        return bool(self.static) and self._input(position) in self.static

    def may_be_known(self, position: int) -> bool:
        """Does the function look whether the input at `position` is known?"""
        return bool(self.known) and self._input(position) in self.known

    def _input(self, position: int) -> str:
        return self.inputs[min(position, len(self.inputs) - 1)]


OPERATORS: Registry[tuple[str, str], Operator] = Registry("ONNX operators")


def operator(name: str, since: int, *, static: str = "", known: str = "", domain: str = "") -> Callable[[F], F]:
    """Enters a function as the operator `name`.

    `static` names inputs that must be known, `known` those that the function wants to know if it can, separated by
    blanks.  Only these are ever numpy arrays: what a function does with the others it does while the program runs.
    """

    def enter(function: F) -> F:
        names = frozenset(static.split()), frozenset(known.split())
        OPERATORS.add((domain, name), Operator(domain, name, since, function, *names))
        return function

    return enter
