"""Cuts an op along a factor, runs the pieces on one device each, and joins or combines what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce as fold
from math import prod

import numpy as np

from hlosharding.errors import HloShardingError
from hlosharding.ir import Builder, Computation, Instruction, Module, Shape
from hlosharding.partitioner import in_plain_forms
from hlosharding.rules import Dims, Factor, Signature, local_attributes
from hlosharding.xla_bridge import run_proto

Arrays = list[np.ndarray]
"""One array per parameter or output, a leading axis of devices before its dims."""

COMBINE = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def run(module: Module, arguments: Arrays) -> Arrays:
    """Outputs of a module, device axes in front.  Raises HloShardingError where XLA refuses the module."""
    devices = arguments[0].shape[0] if arguments else 1
    outputs = run_proto(in_plain_forms(module).to_hlo_proto(), [list(a) for a in arguments], devices)
    return [np.stack(copies) for copies in outputs]


def copy_computation(source: Computation, build: Builder) -> Computation:
    """A copy of a reducer in another module."""
    target = build.computation(source.name)
    new: dict[Instruction, Instruction] = {}
    for inst in source.instructions:
        new[inst] = target.add(inst.opcode, inst.shape, [new[o] for o in inst.operands], like=inst, name=inst.name)
    return target.root(new[source.root]).computation


def piece_module(inst: Instruction, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> Module:
    """The same op on local dims.  Raises HloShardingError where XLA would abort on them."""
    lengths = inst.fft_length
    if lengths and (
        operands[0][-len(lengths) :] != inst.operands[0].shape.dims[-len(lengths) :]
        or operands[0][:-1] != results[0][:-1]
    ):
        raise HloShardingError("a transform whose lengths are not its dims")
    build = Builder("piece", num_partitions=1)
    called = [copy_computation(c, build) for c in inst.called]
    main = build.computation("main")
    parameters = [
        main.parameter(n, o.shape.with_dims(dims))
        for n, (o, dims) in enumerate(zip(inst.operands, operands, strict=True))
    ]
    leaves = [s.with_dims(dims) for s, dims in zip(inst.shape.leaves, results, strict=True)]
    shape = Shape.tuple(tuple(leaves)) if inst.shape.is_tuple else leaves[0]
    attributes = local_attributes(inst, list(operands), results[0])
    main.root(main.add(inst.opcode, shape, parameters, like=inst, called=called, **attributes))
    return build.finish(main)


def cut(array: np.ndarray, dims: Dims, sizes: Sequence[int], factor: int, piece: int, ways: int) -> np.ndarray:
    """The piece of an array along a factor, wherever its dims have it (strided where it is no major part)."""
    for dim, factors in enumerate(dims):
        if factor not in factors:
            continue
        at = factors.index(factor)
        before, after = prod(sizes[f] for f in factors[:at]), prod(sizes[f] for f in factors[at + 1 :])
        axis = dim + 1
        size = array.shape[axis] // (before * after)
        step = size // ways
        shape = array.shape
        view = array.reshape(*shape[:axis], before, size, after, *shape[axis + 1 :])
        part = view[(slice(None),) * (axis + 1) + (slice(piece * step, (piece + 1) * step),)]
        array = part.reshape(*shape[:axis], -1, *shape[axis + 1 :])
    return array


def local_dims(shape: Shape, dims: Dims, factor: int, ways: int) -> tuple[int, ...]:
    """The dims of a piece."""
    return tuple(size // ways if factor in f else size for size, f in zip(shape.dims, dims, strict=True))


def run_pieces(inst: Instruction, signature: Signature, factor: int, arguments: Arrays, ways: int = 2) -> list[Arrays]:
    """Outputs of every piece along a factor; `once` operands enter the first piece, identities the others."""
    sizes = [f.size for f in signature.factors]
    places = zip(inst.operands, signature.operands, strict=True)
    operands = [local_dims(o.shape, dims, factor, ways) for o, dims in places]
    leaves = zip(inst.shape.leaves, signature.results, strict=True)
    results = [local_dims(s, dims, factor, ways) for s, dims in leaves]
    module = piece_module(inst, operands, results)
    out: list[Arrays] = []
    for piece in range(ways):
        mine = [cut(a, d, sizes, factor, piece, ways) for a, d in zip(arguments, signature.operands, strict=True)]
        if piece:
            mine = without_once(signature.factors[factor], mine)
        out.append(run(module, mine))
    return out


def without_once(factor: Factor, arguments: Arrays) -> Arrays:
    """Operands that enter one piece only, replaced by identities (an `other` reducer's init stands for its own)."""
    once, kind = getattr(factor.owes, "once", ()), getattr(factor.owes, "kind", "")
    if kind == "other":
        return arguments
    return [np.full_like(a, identity(kind, a.dtype)) if i in once else a for i, a in enumerate(arguments)]


def identity(kind: str, dtype: np.dtype) -> object:
    """The value that a combination leaves out."""
    if kind in ("maximum", "minimum"):
        low = kind == "maximum"
        if dtype.kind == "f":
            return -np.inf if low else np.inf
        return np.iinfo(dtype).min if low else np.iinfo(dtype).max
    if kind == "and":
        return True if dtype.kind == "b" else ~dtype.type(0)
    return {"add": 0, "multiply": 1, "or": 0, "xor": 0}[kind]


def combine(inst: Instruction, kind: str, pieces: list[Arrays], arguments: Arrays) -> Arrays:
    """Partial results as one: by an ufunc, or by the op's own reducer over the stacked pieces."""
    if kind != "other":
        return [fold(COMBINE[kind], parts) for parts in zip(*pieces, strict=True)]
    build = Builder("combine")
    reducer = copy_computation(inst.called[-1], build)
    main = build.computation("main")
    stacked = [np.stack(parts, axis=1) for parts in zip(*pieces, strict=True)]
    inits = arguments[len(arguments) // 2 :]
    parameters = [main.parameter(n, Shape.from_dtype(a.dtype, a.shape[1:])) for n, a in enumerate([*stacked, *inits])]
    main.root(main.add("reduce", inst.shape, parameters, dimensions=(0,), called=[reducer]))
    return run(build.finish(main), [*stacked, *inits])


def equal(a: Arrays, b: Arrays) -> bool:
    """Integers exactly, floats within 1e-5 of the largest magnitude."""
    return all(_equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    if x.shape != y.shape:
        return False
    if x.dtype.kind in "iub":
        return bool((x == y).all())
    x, y = x.astype(np.complex128), y.astype(np.complex128)
    finite = np.abs(y[np.isfinite(y)])
    scale = float(finite.max()) if finite.size else 1.0
    return bool(np.allclose(x, y, rtol=0, atol=1e-5 * max(scale, 1e-30), equal_nan=True))


def candidate_splits(inst: Instruction, signature: Signature) -> Iterator[tuple[tuple[Dims, ...], tuple[Dims, ...]]]:
    """Joint splits that the signature does not declare as paid with nothing or a reduction.

    One dim of equal size in some of the tensors (an operand at least, or a result), over dims that are undeclared or
    owe more; given as, per tensor, dims with factor 0 where they are split.
    """
    shapes = [*(o.shape for o in inst.operands), *inst.shape.leaves]
    tensors = [*signature.operands, *signature.results]
    open_dims = [
        [d for d, f in enumerate(dims) if s.dims[d] % 2 == 0 and s.dims[d] > 2 and not _settled(f, signature)]
        for s, dims in zip(shapes, tensors, strict=True)
    ]
    for choice in _choices(open_dims, shapes, len(inst.operands)):
        marked = [tuple((0,) if d == at else () for d in range(s.rank)) for s, at in zip(shapes, choice, strict=True)]
        yield tuple(marked[: len(inst.operands)]), tuple(marked[len(inst.operands) :])


def _settled(factors: tuple[int, ...], signature: Signature) -> bool:
    return any(type(signature.factors[f].owes).__name__ in ("Nothing", "Reduce") for f in factors)


def _choices(open_dims: list[list[int]], shapes: list[Shape], operands: int) -> Iterator[list[int | None]]:
    """Per tensor a dim or None: all tensors of one kind (operands, results) split alike, or single ones."""
    from itertools import product

    options: list[list[int | None]] = [[None, *dims] for dims in open_dims]
    for choice in product(*options):
        split = [(n, d) for n, d in enumerate(choice) if d is not None]
        if split and len({shapes[n].dims[d] for n, d in split}) == 1:
            yield list(choice)
