"""A signature as text, `m k, k n -> m n`: JAX's `custom_partitioning` rules, parsed once and bound to shapes at use.

Floor: rules.  Two spellings end in one `NamedRule`: JAX's, and Shardy's attribute as JAX writes it beside its own
custom calls.  (`interface` reads the mesh dialect's indexing maps.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, Shape
from hlosharding.rules.signature import Debt, Halo, Nothing, Reduce, Signature, SignatureMaker, Whole, check_signature

_TOKEN = re.compile(r"\s*(?:(?P<dots>(?:\.\.\.|…)\d*)|(?P<name>[A-Za-z]\w*)|(?P<none>_)|(?P<mark>[(),])|(?P<bad>\S))")
Part: TypeAlias = tuple[str, ...]
"""Factor names of one dim; () for `_`; a single name starting with `...` for leading dims."""


@dataclass(frozen=True)
class NamedRule:
    """Factor names of every dim of every operand and result, and what each factor owes."""

    text: str
    operands: tuple[tuple[Part, ...], ...]
    results: tuple[tuple[Part, ...], ...]
    owes: Mapping[str, Debt] = field(default_factory=dict[str, Debt])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    is_minded: bool = True
    """Must a dim that operands or results lack be whole?  Not where the user's own program minds it."""

    def bind(self, inst: Instruction) -> Signature:
        """The signature for one instruction, its factor sizes taken from the shapes.  Raises RuleError."""
        shapes = ([o.shape for o in inst.operands], list(inst.shape.leaves))
        sides: list[list[list[Part]]] = []
        for named, side, word in zip((self.operands, self.results), shapes, ("operands", "results"), strict=True):
            tensors = named or ((),) * (len(side) == 1)  # nothing may stand for one scalar
            if len(tensors) != len(side):
                raise self._error(f"{len(tensors)} {word}, but the op has {len(side)}", inst)
            sides.append([self._expand(t, s, inst) for t, s in zip(tensors, side, strict=True)])
        sizes = self._solve(sides, shapes, inst)
        signature = self._signature(inst, sides, sizes)
        check_signature(signature, inst)
        return signature

    def _expand(self, dims: tuple[Part, ...], shape: Shape, inst: Instruction) -> list[Part]:
        """Leading dims spelt out, numbered from the major end, so that equal groups must have equal ranks."""
        if not (dims and dims[0] and dims[0][0].startswith("...")):
            return list(dims)
        count = shape.rank - (len(dims) - 1)
        if count < 0:
            raise self._error(f"{len(dims) - 1} dims after '...' for {shape}", inst)
        return [(f"{dims[0][0]}{'' if dims[0][0] != '...' else '0'}_{i}",) for i in range(count)] + list(dims[1:])

    def _solve(
        self, sides: list[list[list[Part]]], shapes: tuple[list[Shape], list[Shape]], inst: Instruction
    ) -> dict[str, int]:
        sizes = dict(self.sizes)
        places = [
            (part, shape.dims[d])
            for tensors, side in zip(sides, shapes, strict=True)
            for dims, shape in zip(tensors, side, strict=True)
            for d, part in enumerate(dims[: shape.rank])
        ]
        # Dims of one factor first: of a dim of several all but one must be known.
        for part, size in sorted(places, key=lambda p: len(p[0])):
            open_names = [n for n in part if n not in sizes]
            if len(open_names) == 1:
                known = 1
                for name in part:
                    known *= sizes.get(name, 1)
                if known == 0 or size % known:
                    raise self._error(f"a dim of {size} has no part of {known}", inst)
                sizes[open_names[0]] = size // known
        missing = sorted({n for part, _ in places for n in part} - set(sizes))
        if missing:
            raise self._error(f"no size for {missing}: pass {missing[0]}=...", inst)
        return sizes

    def _signature(self, inst: Instruction, sides: list[list[list[Part]]], sizes: dict[str, int]) -> Signature:
        for tensors, shapes in zip(sides, ([o.shape for o in inst.operands], inst.shape.leaves), strict=True):
            for dims, shape in zip(tensors, shapes, strict=True):
                if len(dims) != shape.rank:
                    raise self._error(f"{len(dims)} dims for {shape}", inst)
        make = SignatureMaker(inst)
        order = dict.fromkeys(n for tensors in sides for dims in tensors for part in dims for n in part)
        # Minor parts are entered after major ones, so names must be ordered as each compound dim has them.
        for name in _as_in_every_dim(list(order), [p for t in sides for dims in t for p in dims if len(p) > 1]):
            at, out = (
                [(t, d) for t, dims in enumerate(tensors) for d, part in enumerate(dims) if name in part]
                for tensors in sides
            )
            make.factor(name, sizes[name], at, out, owes=self._debt(name, at, out))
        return make.build()

    def _debt(self, name: str, at: list[tuple[int, int]], out: list[tuple[int, int]]) -> Debt:
        # Nobody can make a part of the result from nothing, or drop a part of an operand, without being told how.
        given = self.owes.get(name, Nothing())
        return Whole() if self.is_minded and given == Nothing() and not (at and out) else given

    def _error(self, what: str, inst: Instruction) -> RuleError:
        return RuleError(f"rule {self.text!r}: {what}", where=f"{inst!r} {inst.location}".strip())


def _as_in_every_dim(names: list[str], compounds: list[Part]) -> list[str]:
    """`names`, stably sorted so that every compound dim's parts stand in its order."""
    placed: list[str] = []
    waiting = list(names)
    while waiting:
        ready = next((n for n in waiting if not _has_earlier(n, waiting, compounds)), None)
        if ready is None:
            raise RuleError(f"factors {waiting} are major and minor to each other", remedy="give one order in all dims")
        waiting.remove(ready)
        placed.append(ready)
    return placed


def _has_earlier(name: str, waiting: list[str], compounds: list[Part]) -> bool:
    return any(name in c and any(n in waiting for n in c[: c.index(name)]) for c in compounds)


def parse_rule(
    text: str,
    *,
    reduction_factors: Sequence[str] = (),
    need_replication_factors: Sequence[str] = (),
    permutation_factors: Sequence[str] = (),
    reducer: str = "add",
    **sizes: int,
) -> NamedRule:
    """Read a rule.  Raises RuleError with the position.

    >>> rule = parse_rule("... m k, k n -> ... m n", reduction_factors=("k",))
    >>> rule.operands, rule.owes["k"]
    (((('...',), ('m',), ('k',)), (('k',), ('n',))), Reduce(kind='add', once=()))
    """
    given: list[tuple[Sequence[str], Debt]] = [
        (reduction_factors, Reduce(reducer)),
        (need_replication_factors, Whole()),
        (permutation_factors, Halo(0)),
    ]
    return _named_rule(text, given, sizes)


def _named_rule(text: str, debts: Sequence[tuple[Sequence[str], Debt]], sizes: Mapping[str, int]) -> NamedRule:
    left, arrow, right = text.partition("->")
    if not arrow or "->" in right:
        raise RuleError(f"rule {text!r} has {'no' if not arrow else 'more than one'} '->'")
    operands, results = _tensors(text, left, 0), _tensors(text, right, len(left) + 2)
    names = {n for t in (*operands, *results) for part in t for n in part}
    owes: dict[str, Debt] = {}
    for factors, debt in debts:
        for name in factors:
            if name not in names or name in owes:
                raise RuleError(f"rule {text!r}: factor {name!r} is {'listed twice' if name in owes else 'not in it'}")
            owes[name] = debt
    for name in sizes:
        if name not in names:
            raise RuleError(f"rule {text!r} has no factor {name!r}")
    return NamedRule(text, operands, results, owes, sizes)


def _tensors(text: str, side: str, offset: int) -> tuple[tuple[Part, ...], ...]:
    if not side.strip():
        return ()
    tensors: list[list[Part]] = [[]]
    group: list[str] | None = None
    for token in _TOKEN.finditer(side.rstrip()):  # blanks before nothing would be looked at from each of them
        kind, word, position = token.lastgroup, token[token.lastgroup or 0], offset + token.start()
        if kind == "mark" and word == "(" and group is None:
            group = []
        elif kind == "mark" and word == ")" and group is not None and len(group) > 1:
            tensors[-1].append(tuple(group))
            group = None
        elif kind == "mark" and word == "," and group is None:
            tensors.append([])
        elif kind == "name" and group is not None:
            group.append(word)
        elif kind == "name":
            tensors[-1].append((word,))
        elif kind == "none" and group is None:
            tensors[-1].append(())
        elif kind == "dots" and group is None and not tensors[-1]:
            tensors[-1].append(("..." + word.lstrip(".…"),))
        else:
            raise RuleError(f"rule {text!r}: {word!r} cannot stand at position {position}")
    if group is not None:
        raise RuleError(f"rule {text!r}: '(' is not closed")
    return tuple(map(tuple, tensors))


# Possessive repetitions, as in the scanner of shardings: each letter of a stranger's text is looked at once.
_SHARDY = re.compile(
    r"#?(?:sdy\.op_sharding_rule)?<\((?P<left>[^()]*+)\)->\((?P<right>[^()]*+)\)\s*+\{(?P<sizes>[^}]*+)\}(?P<tail>.*)>"
)
_FACTOR = re.compile(r"[a-z](?:_\d+)?")
_SHARDY_LISTS: dict[str, Debt] = {"reduction": Reduce("add"), "need_replication": Whole(), "permutation": Halo(0)}


def parse_shardy_rule(text: str) -> NamedRule:
    """Read Shardy's attribute form.  Raises RuleError.

    >>> rule = parse_shardy_rule("#sdy.op_sharding_rule<([i, j, k])->([i, l]) {i=4, j=6, k=6, l=6}, custom>")
    >>> rule.operands, rule.results, rule.sizes["k"]
    (((('i',), ('j',), ('k',)),), ((('i',), ('l',)),), 6)
    """
    match = _SHARDY.fullmatch(text.strip())
    if match is None:
        raise RuleError(f"no sharding rule of Shardy: {text!r}")
    sizes = {name: int(size) for name, size in re.findall(r"(?<!\w)(\w++)=([0-9]{1,18})(?![0-9])", match["sizes"])}
    left, right = (
        ", ".join(" ".join(_shardy_dims(tensor)) for tensor in re.findall(r"\[([^\[\]]*+)\]", match[side]))
        for side in ("left", "right")
    )
    lists = re.findall(r"(?<!\w)(\w++)=\{([^{}]*+)\}", match["tail"])
    debts = [(_FACTOR.findall(names), _SHARDY_LISTS[kind]) for kind, names in lists if kind in _SHARDY_LISTS]
    return _named_rule(f"{left} -> {right}", debts, sizes)


def _shardy_dims(tensor: str) -> list[str]:
    dims = [_FACTOR.findall(dim) for dim in tensor.split(",") if dim.strip()]
    return [f"({' '.join(f)})" if len(f) > 1 else f[0] if f else "_" for f in dims]
