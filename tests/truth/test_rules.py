"""Every rule tells the truth: a declared factor may be split at its price, and no other dim could be split free."""

from __future__ import annotations

import itertools
import zlib
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from hlosharding.errors import HloShardingError
from hlosharding.ir import Instruction
from hlosharding.rules import (
    Debt,
    Dims,
    Factor,
    Halo,
    Nothing,
    Reduce,
    Signature,
    Whole,
    catalog,
    check_signature,
    signature_of,
    window_of,
)
from tests.truth import pieces
from tests.truth.cases import NOT_COMPILED_ON_CPU, Case, all_cases

CASES = all_cases()
BY_NAME = {case.name: case for case in CASES}


def rng_of(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.name.encode()))


def signature(case: Case) -> Signature:
    found = signature_of(case.inst)
    assert isinstance(found, Signature)
    check_signature(found, case.inst)
    return found


def test_every_rule_has_a_case() -> None:
    ruled = {opcode for opcode in catalog if type(catalog[opcode]).__name__ == "RuleRow"}
    assert ruled - set(NOT_COMPILED_ON_CPU) == {case.inst.opcode for case in CASES}


@pytest.mark.parametrize("name", BY_NAME)
def test_pieces_join_to_the_whole(name: str) -> None:
    case = BY_NAME[name]
    relation, arguments = signature(case), case.arguments(rng_of(case))
    whole = pieces.run(case.module, arguments)
    for number, factor in enumerate(relation.factors):
        if factor.size % 2 == 0 or isinstance(factor.owes, Halo | Whole):
            why = f"{name}: factor {factor.name} of {relation} owes {factor.owes}"
            assert _holds(case, relation, number, arguments, whole), why


def _holds(case: Case, relation: Signature, number: int, arguments: pieces.Arrays, whole: pieces.Arrays) -> bool:
    factor, inst = relation.factors[number], case.inst
    match factor.owes:
        case Nothing():
            return _joins(inst, relation, number, arguments, whole)
        case Reduce(kind=kind):
            parts = pieces.run_pieces(inst, relation, number, arguments)
            return pieces.equal(pieces.combine(inst, kind, parts, arguments), whole)
        case Halo(window=index):
            return _sees_its_window(case, relation, number, index, arguments, whole)
        case Whole(indexed=True):
            return _rows_are_independent(case, relation, number, arguments, whole)
        case Whole():
            return True


def _joins(inst: Instruction, relation: Signature, number: int, arguments: pieces.Arrays, whole: pieces.Arrays) -> bool:
    sizes = [f.size for f in relation.factors]
    parts = pieces.run_pieces(inst, relation, number, arguments)
    expected = [
        [pieces.cut(w, dims, sizes, number, piece, 2) for w, dims in zip(whole, relation.results, strict=True)]
        for piece in range(2)
    ]
    return all(pieces.equal(part, want) for part, want in zip(parts, expected, strict=True))


def _sees_its_window(
    case: Case, relation: Signature, number: int, index: int, arguments: pieces.Arrays, whole: pieces.Arrays
) -> bool:
    """Elements outside the window of a piece may be anything: the piece of the result stays."""
    rng = np.random.default_rng(1)
    places = relation.operand_dims(number)
    for leaf, out in relation.result_dims(number):
        size = whole[leaf].shape[out + 1]
        for low, high in ((0, size // 2), (size // 2, size)):
            changed = list(arguments)
            for operand, dim in places:
                keep = _seen(case.inst, index, operand, low, high, arguments, dim)
                changed[operand] = _scramble(arguments[operand], dim, keep, rng)
            now = pieces.run(case.module, changed)
            part = (slice(None),) * (out + 1) + (slice(low, high),)
            if not pieces.equal([now[leaf][part]], [whole[leaf][part]]):
                return False
    return True


def _seen(
    inst: Instruction, index: int, operand: int, low: int, high: int, arguments: pieces.Arrays, dim: int
) -> set[int]:
    size = arguments[operand].shape[dim + 1]
    if inst.opcode == "reverse":
        return {size - 1 - o for o in range(low, high)}
    window = window_of(inst, index)
    if inst.opcode == "select-and-scatter":
        # A place gets from every source element whose window holds it, and that element looks at its whole window.
        count = arguments[1].shape[dim + 1]
        sources = [o for o in range(count) if _places(window, o, high) & set(range(low, high))]
        if operand == 1:
            return set(sources)
        return set().union(*(_places(window, o, size) for o in sources)) | set(range(low, high))
    return {p for o in range(low, high) for p in _places(window, o, size)}


def _places(window: object, o: int, size: int) -> set[int]:
    start = o * window.stride - window.padding_low  # type: ignore[attr-defined]
    raw = [start + k * window.window_dilation for k in range(window.size)]  # type: ignore[attr-defined]
    gap = window.base_dilation  # type: ignore[attr-defined]
    return {p // gap for p in raw if p % gap == 0 and 0 <= p // gap < size}


def _scramble(array: np.ndarray, dim: int, keep: set[int], rng: np.random.Generator) -> np.ndarray:
    out = np.moveaxis(array.copy(), dim + 1, 0)
    for place in range(out.shape[0]):
        if place not in keep:
            out[place] = (rng.integers(1, 100, out[place].shape) + 5).astype(array.dtype)
    return np.moveaxis(out, 0, dim + 1)


def _rows_are_independent(
    case: Case, relation: Signature, number: int, arguments: pieces.Arrays, whole: pieces.Arrays
) -> bool:
    """With the factor in the result: a row comes from its own row.  Without: the pieces, zero elsewhere, add up."""
    places, size = relation.operand_dims(number), relation.factors[number].size
    halves = [set(range(size // 2)), set(range(size // 2, size))]
    rng = np.random.default_rng(2)
    outputs: list[pieces.Arrays] = []
    for half in halves:
        changed = list(arguments)
        for operand, dim in places:
            if relation.result_dims(number):
                changed[operand] = _scramble(arguments[operand], dim, half, rng)
            else:
                changed[operand] = _zero(arguments[operand], dim, half)
        outputs.append(pieces.run(case.module, changed))
    if not relation.result_dims(number):
        return pieces.equal([a + b for a, b in zip(*outputs, strict=True)], whole)
    for (leaf, dim), (half, out) in itertools.product(relation.result_dims(number), zip(halves, outputs, strict=True)):
        rows = sorted(half)
        if not pieces.equal([out[leaf].take(rows, dim + 1)], [whole[leaf].take(rows, dim + 1)]):
            return False
    return True


def _zero(array: np.ndarray, dim: int, keep: set[int]) -> np.ndarray:
    out = np.moveaxis(array.copy(), dim + 1, 0)
    for place in set(range(out.shape[0])) - keep:
        out[place] = 0
    return np.moveaxis(out, 0, dim + 1)


# Splits that hold without a debt, and why the rule does not declare them all the same.
KNOWN_MISSING = {"get-dimension-size": "every piece of the other dims has the same answer, so there is nothing to join"}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_is_missing(name: str) -> None:
    """No dim that is undeclared, or declared to owe a halo or the whole, can be split at no price."""
    case = BY_NAME[name]
    arguments = case.arguments(rng_of(case))
    relation, whole = signature(case), pieces.run(case.module, arguments)
    found = [
        f"{operands} -> {results} by {how}"
        for operands, results in pieces.candidate_splits(case.inst, relation)
        for how in _ways_it_holds(case.inst, operands, results, arguments, whole)
    ]
    assert (name in KNOWN_MISSING) == bool(found), f"{name}, declared {relation}: {found}"


def _ways_it_holds(
    inst: Instruction,
    operands: tuple[Dims, ...],
    results: tuple[Dims, ...],
    arguments: pieces.Arrays,
    whole: pieces.Arrays,
) -> list[str]:
    split = Signature((Factor("try", 0),), operands, results)
    try:
        parts = pieces.run_pieces(inst, split, 0, arguments)
    except (HloShardingError, ZeroDivisionError, ValueError):
        return []  # not even a well-formed op
    if any(dim for dims in results for dim in dims):
        want = [[pieces.cut(w, d, [0], 0, p, 2) for w, d in zip(whole, results, strict=True)] for p in range(2)]
        return ["joining"] if all(pieces.equal(a, b) for a, b in zip(parts, want, strict=True)) else []
    kinds = [k for k in pieces.COMBINE if all(w.dtype.kind in "iub" or k in _REAL for w in whole)]
    return [k for k in kinds if pieces.equal([pieces.COMBINE[k](*p) for p in zip(*parts, strict=True)], whole)]


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("sort", {"d1": Nothing()}),
        ("dot", {"k0": Nothing()}),
        ("dot", {"k0": Reduce("maximum")}),
        ("reduce variadic", {"r1": Reduce("add")}),
        ("concatenate", {"d1": Nothing()}),
        ("iota", {"d0": Nothing()}),
        ("slice", {"d0": Nothing()}),
        ("slice", {"d0": Halo(1)}),
        ("pad", {"d1": Halo(0)}),
        ("gather rows", {"x0": Reduce("add")}),
        ("gather windows", {"o2": Reduce("add")}),
        ("scatter add", {"s0": Reduce("maximum", once=(0,))}),
        ("batch-norm-training", {"d0": Nothing()}),
        ("fft", {"d2": Nothing()}),
    ],
)
def test_a_lie_is_found(name: str, lie: dict[str, Debt]) -> None:
    case = BY_NAME[name]
    arguments, honest = case.arguments(rng_of(case)), signature(case)
    factors = tuple(replace(f, owes=lie.get(f.name, f.owes)) for f in honest.factors)
    told = replace(honest, factors=factors)
    number = next(i for i, f in enumerate(factors) if f != honest.factors[i])
    whole = pieces.run(case.module, arguments)
    # An error: the pieces are not even well formed.
    with suppress(HloShardingError):
        assert not _holds(case, told, number, arguments, whole)


@pytest.mark.parametrize("name", ["dot batched", "gather batched", "reduce", "transpose", "convolution groups"])
def test_an_omission_is_found(name: str) -> None:
    case = BY_NAME[name]
    arguments, honest = case.arguments(rng_of(case)), signature(case)
    whole = pieces.run(case.module, arguments)
    for number, factor in enumerate(honest.factors):
        compound = any(len(honest.operands[o][d]) > 1 for o, d in honest.operand_dims(number))
        if factor.owes != Nothing() or compound or factor.size < 4:
            continue
        silent = replace(honest, factors=tuple(replace(f, owes=Whole()) if f is factor else f for f in honest.factors))
        splits = pieces.candidate_splits(case.inst, silent)
        assert any(_ways_it_holds(case.inst, *split, arguments, whole) for split in splits), factor


_REAL = ("add", "multiply", "maximum", "minimum")
