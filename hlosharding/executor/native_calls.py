"""Custom calls whose results are as large as what they write, known by their operands' shapes.

Floor: executor.  XLA hands a custom call pointers; LAPACK writes as much as the operands' sizes say, into results whose
shapes a file may state wrongly.  Shapes are those of `jax.lax.linalg` on CPU devices (LAPACK's own documentation).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from hlosharding.ir import Instruction, Shape
from hlosharding.ir import custom_call_targets as targets

_KERNEL = re.compile(r"lapack_([sdcz])(\w+)_ffi")
_REAL = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}
_COMPLEX = {"s": "c64", "d": "c128", "c": "c64", "z": "c128"}
_INTEGER = "s32"
_PLAIN = re.compile(r"\{\w+ = \w+(?: : \w+)?(?:, \w+ = \w+(?: : \w+)?)*\}")
"""A dictionary as JAX writes it for these kernels: a string, or another dictionary in it, could say anything."""


class _CallShapes(NamedTuple):
    """Operands and results by their dims behind the batch's, a letter each, and where they are of another type that:
    `r:` real, `c:` complex, `i:` integer."""

    text: str
    bounded: tuple[tuple[str, str], ...] = ()
    """Dims of which the first is at most the second."""
    attributes: Mapping[str, int] = {}
    """What must be so for the signature to hold."""


_SVD = (
    _CallShapes("mn -> mn r:k mm nn i:", attributes={"mode": ord("A")}),
    _CallShapes("mn -> mn r:k mk kn i:", attributes={"mode": ord("S")}),
    _CallShapes("mn -> mn r:k mm nn i:", attributes={"mode": ord("N")}),
    _CallShapes("mn -> mn r:k mk kn i:", attributes={"mode": ord("N")}),
)
_SORT = {"sort": ord("N")}  # by a function, else, that no file can bring
_EIGENVECTORS = (_CallShapes("nn -> nn r:n i:"),)
_PRODUCT = (_CallShapes("mn p -> mn", (("n", "m"), ("p", "n"))),)
_MULTIPLY = (
    _CallShapes("mk p mn -> mn", (("p", "k"), ("p", "m")), {"left": True}),
    _CallShapes("nk p mn -> mn", (("p", "k"), ("p", "n")), {"left": False}),
)
_TRIDIAGONAL = (_CallShapes("nn -> nn r:n r:l l i:"),)
_KERNELS: dict[str, tuple[_CallShapes, ...]] = {
    "potrf": (_CallShapes("nn -> nn i:"),),
    "getrf": (_CallShapes("mn -> mn i:k i:"),),
    "geqrf": (_CallShapes("mn -> mn k"),),
    "geqp3": (_CallShapes("mn i:n -> mn i:n k"),),
    "orgqr": _PRODUCT,
    "ungqr": _PRODUCT,
    "ormqr": _MULTIPLY,
    "unmqr": _MULTIPLY,
    "gesdd": _SVD,
    "gesvd": _SVD,
    "syevd": _EIGENVECTORS,
    "heevd": _EIGENVECTORS,
    "geev": (_CallShapes("nn -> n n c:nn c:nn i:"),),
    "gees": (_CallShapes("nn -> nn nn n n i: i:", attributes=_SORT),),
    "gehrd": (_CallShapes("nn -> nn l i:"),),
    "sytrd": _TRIDIAGONAL,
    "hetrd": _TRIDIAGONAL,
    "gtsv": (_CallShapes("n n n nq -> n n n nq i:"),),
    "trsm": (
        _CallShapes("mm mn -> mn", attributes={"side": ord("L")}),
        _CallShapes("nn mn -> mn", attributes={"side": ord("R")}),
    ),
}
_COMPLEX_KERNELS: dict[str, tuple[_CallShapes, ...]] = {
    "geev": (_CallShapes("nn -> n nn nn i:"),),
    "gees": (_CallShapes("nn -> nn nn n i: i:", attributes=_SORT),),
}
_EXPANDED = {
    targets.QR: _KERNELS["geqrf"],
    targets.HOUSEHOLDER_PRODUCT: _PRODUCT,
    targets.EIGH: (_CallShapes("nn -> nn n"),),
}


def is_lapack(inst: Instruction) -> bool:
    """Does the instruction call a kernel of LAPACK's?"""
    return inst.custom_call_target.startswith(("lapack_", "blas_"))


def is_known(inst: Instruction) -> bool:
    """Is it a call whose shapes can be checked, or that computes nothing?"""
    return inst.custom_call_target in _COMPUTE_NOTHING or bool(_signatures(inst.custom_call_target)[0])


def has_its_shapes(inst: Instruction) -> bool:
    """Are a known call's results as large as what it writes?"""
    if inst.custom_call_target in _COMPUTE_NOTHING:
        return True
    signatures, types = _signatures(inst.custom_call_target)
    operands, results = [o.shape for o in inst.operands], list(inst.shape.leaves)
    if operands and not types[""]:
        types = {"": operands[0].element_type}
    return any(_fits(each, inst.opaque, operands, results, types) for each in signatures)


_COMPUTE_NOTHING = targets.ANNOTATIONS | targets.PLACEMENTS | {targets.LAYOUT_CONSTRAINT}
_Types = Mapping[str, str]


def _signatures(target: str) -> tuple[tuple[_CallShapes, ...], _Types]:
    """How it may be called, and the element types that the signatures' letters mean."""
    if target == targets.TOP_K:
        return (_CallShapes("n -> p i:p", (("p", "n"),)),), {"": "f32", "i": _INTEGER}
    if target in _EXPANDED:
        return _EXPANDED[target], {"": ""}
    if target == "tridiagonal_solve_perturbed_ffi":
        return (_CallShapes("n n n nq -> nq"),), {"": ""}
    found = _KERNEL.fullmatch(target)
    if found is None:
        return (), {}
    kind, name = found.groups()
    own = _REAL if kind in "sd" else _COMPLEX
    types = {"": own[kind], "r": _REAL[kind], "c": _COMPLEX[kind], "i": _INTEGER}
    return (_COMPLEX_KERNELS if kind in "cz" else {}).get(name, _KERNELS.get(name, ())), types


def _fits(signature: _CallShapes, opaque: str, operands: list[Shape], results: list[Shape], types: _Types) -> bool:
    taken, made = (side.split() for side in signature.text.split("->"))
    if len(taken) != len(operands) or len(made) != len(results) or not _says(opaque, signature.attributes):
        return False
    sizes: dict[str, int] = {}
    batch = operands[0].dims[: len(operands[0].dims) - len(taken[0].rpartition(":")[2])]
    if not all(_binds(term, shape, batch, sizes, types) for term, shape in zip(taken, operands, strict=True)):
        return False
    if "n" in sizes:
        sizes["l"] = max(0, sizes["n"] - 1)
    if {"m", "n"} <= sizes.keys():
        sizes.setdefault("k", min(sizes["m"], sizes["n"]))
    fits = all(_binds(term, shape, batch, sizes, types) for term, shape in zip(made, results, strict=True))
    return fits and all(sizes[low] <= sizes[high] for low, high in signature.bounded)


def _binds(term: str, shape: Shape, batch: tuple[int, ...], sizes: dict[str, int], types: _Types) -> bool:
    """Is the shape that of the term, its letters known or bound to sizes now?"""
    kind, _, letters = term.rpartition(":")
    wanted = types.get(kind, "")
    if wanted and shape.element_type != wanted:
        return False
    if len(shape.dims) != len(batch) + len(letters) or shape.dims[: len(batch)] != batch:
        return False
    own = shape.dims[len(batch) :]
    return all(sizes.setdefault(letter, size) == size for letter, size in zip(letters, own, strict=True))


def _says(opaque: str, attributes: Mapping[str, int]) -> bool:
    """Does the call's dictionary hold these values?"""
    if attributes and not _PLAIN.fullmatch(opaque):
        return False
    for name, value in attributes.items():
        found = re.search(rf"\b{name} = (\w+)", opaque)
        if found is None or {"true": 1, "false": 0}.get(found[1], found[1]) not in (value, str(value)):
            return False
    return True
