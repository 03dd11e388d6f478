"""Custom calls: the targets JAX emits whose meaning is known, and the user's own.

Floor: rules.  What users said (`registration.py`) comes before what is known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from hlosharding.errors import RuleError
from hlosharding.ir import RULE_MARK, Instruction, Module
from hlosharding.ir import custom_call_targets as targets
from hlosharding.registry import Registry
from hlosharding.rules import attention
from hlosharding.rules.notation import parse_shardy_rule
from hlosharding.rules.reductions import topk
from hlosharding.rules.signature import DataFlow, Opaque, Signature, SignatureMaker, check_signature, same_dims

# ---- what one run of a custom call costs: what its user says, for nobody else can know


class CallCost(NamedTuple):
    """Work of a custom call on one device.

    >>> CallCost(flops=2.0 * 64**3, bytes_accessed=3 * 4 * 64**2).transcendentals
    0.0
    """

    flops: float
    """Arithmetic operations, transcendentals apart; they run at the rate of matrix products."""
    bytes_accessed: float
    """Read from memory and written to it."""
    transcendentals: float = 0.0
    """Exponentials, roots, sines, ...: one each."""
    matrix: tuple[int, int, int, int] | None = None
    """Of its products: batches, rows, columns, depth, which decide how well they fill a device; None: they fill it."""


class EstimatedCost(Protocol):
    """A `CallCost`, or what Pallas calls `CostEstimate`."""

    @property
    def flops(self) -> float: ...

    @property
    def bytes_accessed(self) -> float: ...

    @property
    def transcendentals(self) -> float: ...


CostFunction = Callable[[Instruction], EstimatedCost]
"""Of the call as one device runs it."""


Rule = Callable[[Instruction], Signature]
known_rules: Registry[str, Rule] = Registry("the table of custom-call rules")


class UsersCall(NamedTuple):
    """What a user says of a custom call."""

    rule: Rule
    cost: CostFunction | None
    is_like_a_function: bool
    """Of JAX's ops: then propagation goes through the call, too."""
    kernel: Callable[..., Any] | None
    """What makes the call, on arrays of any shape."""


users_calls: dict[str, UsersCall] = {}
"""Of this process, by the name that `register_rule` was told."""

_PASS = (targets.SHARDING, targets.X64_COMBINE, targets.LAYOUT_CONSTRAINT, *sorted(targets.PLACEMENTS))
_RESIZE = ("ResizeNearest", "ResizeBilinear", "ResizeNearestGrad", "ResizeBilinearGrad")


def custom_call(inst: Instruction) -> Signature | DataFlow | Opaque:
    """The rule of the target, checked against the shapes; Opaque for a target nobody knows."""
    target = inst.custom_call_target
    if target in targets.MANUAL_CONVERSIONS:
        return DataFlow("manual")
    said = users_calls.get(registered_name(inst))
    if said is None and target in known_rules:
        return _by_known_rule(inst, known_rules[target])
    rule = said.rule if said is not None else _carried_rule(inst)
    if rule is None:
        name = next(reversed(_kernel_names(inst)), target)
        return Opaque(f"no rule for custom call {name!r}: register one with hlosharding.register_rule")
    signature = rule(inst)
    check_signature(signature, inst)
    return signature


def _by_known_rule(inst: Instruction, rule: Rule) -> Signature | Opaque:
    # A stranger's call may bear the name of one that is known, and be another.
    with suppress(LookupError, RuleError):
        signature = rule(inst)
        check_signature(signature, inst)
        if signature.operands and signature.results:
            return signature
    return Opaque(f"custom call {inst.custom_call_target!r} has not the operands and results that its rule is for")


_PALLAS, _SHARD_MAP = "pallas_call", "shard_map"


def registered_name(inst: Instruction) -> str:
    """By which users said something of a call: its target, or a name of its kernel."""
    # Scopes are text that is taken apart: they are looked at only where users registered something.
    names = _kernel_names(inst) if users_calls else ()
    return next((name for name in names if name in users_calls), inst.custom_call_target)


def is_whole_kernel(inst: Instruction) -> bool:
    """Is it a Pallas kernel whose code was made for whole arrays, since it stands in no `shard_map`?"""
    return _is_kernel(inst) and _SHARD_MAP not in _scopes(inst)


def _is_kernel(inst: Instruction) -> bool:
    return inst.opcode == "custom-call" and _PALLAS in _scopes(inst)


def _kernel_names(inst: Instruction) -> Sequence[str]:
    """Of a Pallas kernel, whose target all kernels share: the scopes around it, the most first; () of other calls.

    The innermost is the `name` of its `pallas_call`, else the jitted function around it.
    """
    if not _is_kernel(inst):
        return ()
    scopes = _scopes(inst)
    around = scopes[: scopes.index(_PALLAS)]
    return ["/".join(around[n:]) for n in range(len(around))]


def _scopes(inst: Instruction) -> list[str]:
    """Names of functions, scopes and primitives around an op, without what JAX made of them: `jvp(f)` is f."""
    names = (part.rstrip(")").rpartition("(")[2] for part in inst.op_name.split("/"))
    return [name for name in names if name]


def function_signature(inst: Instruction) -> Signature | None:
    """The signature of a call that a user wants split like a function of JAX's ops; None of all others."""
    said = users_calls.get(registered_name(inst))
    return said.rule(inst) if said is not None and said.is_like_a_function else None


_NUMBER = re.compile(r"\s*+[+-]?[0-9]{1,18}\s*+", re.ASCII)
"""What XLA's SimpleAtoi reads."""


def batch_dims(inst: Instruction) -> int:
    """Leading dims along which a custom call may be split: JAX marks its linear algebra so (`num_batch_dims`)."""
    # Anybody may have written the attribute: what is no number counts as none, as in XLA.
    text = inst.frontend_attributes.get("num_batch_dims", "")
    return max(0, int(text)) if _NUMBER.fullmatch(text) else 0


def _carried_rule(inst: Instruction) -> Rule | None:
    """What JAX wrote beside the call: Shardy's rule of a custom_partitioning, the batch dims of an ffi call."""
    given = inst.frontend_attributes
    if "num_batch_dims" in given:
        return _batched_dims(batch_dims(inst))
    text = given.get(RULE_MARK) or given.get("sdy.sharding_rule")
    return parse_shardy_rule(text).bind if text else None


def _batched_dims(count: int) -> Rule:
    """The first `count` dims of every tensor that has them are a batch; all others are whole."""

    def rule(inst: Instruction) -> Signature:
        make = SignatureMaker(inst)
        batch = inst.operands[0].shape.dims[:count] if inst.operands else ()
        operands = [i for i, o in enumerate(inst.operands) if o.shape.dims[: len(batch)] == batch]
        results = [i for i, s in enumerate(inst.shape.leaves) if s.dims[: len(batch)] == batch]
        for dim, size in enumerate(batch):
            make.factor(f"b{dim}", size, ((i, dim) for i in operands), ((i, dim) for i in results))
        return make.build()

    return rule


def _batched(core: int) -> Rule:
    """Calls whose last `core` dims of operand 0 are one problem, and all dims before them a batch."""
    return lambda inst: _batched_dims(max(0, inst.operands[0].shape.rank - core))(inst)


_RIGHT_SIDES = {"76": -1, "82": -2}
"""By LAPACK's letter for the side on which the matrix stands (L, R): the dim along which right-hand sides follow."""


def _triangular_solve(inst: Instruction) -> Signature:
    """One matrix per batch; right-hand sides are independent of each other, though nothing spreads along them: to XLA
    they are dims of a call like any other."""
    make, rank = SignatureMaker(inst), inst.shape.rank
    for dim, size in enumerate(inst.shape.dims[:-2]):
        make.factor(f"b{dim}", size, [(0, dim), (1, dim)], [(0, dim)])
    side = re.search(r"\bside = (\d+)", inst.opaque)
    if side and side[1] in _RIGHT_SIDES:
        free = rank + _RIGHT_SIDES[side[1]]
        make.factor("n", inst.shape.dims[free], [(1, free)], [(0, free)], spreads=False)
    return make.build()


def _resize(inst: Instruction) -> Signature:
    """Dims of equal size pass, resized ones are whole."""
    before, after = inst.operands[0].shape.dims, inst.shape.dims
    return same_dims(inst, whole=[d for d, size in enumerate(after) if before[d] != size])


# Name stems of LAPACK's CPU kernels as JAX names them: lapack_<precision><stem>_ffi.  All take matrices.
_LAPACK = ("gees", "geev", "gehrd", "geqp3", "geqrf", "gesdd", "gesvd", "getrf", "potrf")
_LAPACK_REAL = ("orgqr", "ormqr", "syevd", "sytrd")
_LAPACK_COMPLEX = ("ungqr", "unmqr", "heevd", "hetrd")
_SOLVER = "geev geqrf gesdd gesvd gesvdj gesvdp getrf orgqr ormqr potrf syevd syrk sytrd".split()


def _matrix_targets() -> list[str]:
    cpu = [f"lapack_{p}{stem}_ffi" for p in "sdcz" for stem in _LAPACK]
    cpu += [f"lapack_{p}{stem}_ffi" for p in "sd" for stem in _LAPACK_REAL]
    cpu += [f"lapack_{p}{stem}_ffi" for p in "cz" for stem in _LAPACK_COMPLEX]
    return cpu + [f"{vendor}solver_{stem}_ffi" for vendor in ("cu", "hip") for stem in _SOLVER]


def _vector_targets() -> list[str]:
    """Calls on tridiagonals, given as vectors, and on pivots."""
    gpu = [f"{v}_lu_pivots_to_permutation" for v in ("cu", "hip")] + [f"{v}sparse_gtsv2_ffi" for v in ("cu", "hip")]
    return [*(f"lapack_{p}gtsv_ffi" for p in "sdcz"), "tridiagonal_solve_perturbed_ffi", *gpu]


def _enter_known_targets() -> None:
    tables: list[tuple[Sequence[str], Rule]] = [
        (_PASS, same_dims),
        (("cu_threefry2x32_ffi", "hip_threefry2x32_ffi"), same_dims),
        (_RESIZE, _resize),
        ((targets.TOP_K, "__gpu$TopK", "mhlo.topk"), topk),
        (attention.KINDS, attention.attention),
        ((*targets.EXPANDED, *_matrix_targets()), _batched(2)),
        ([f"lapack_{p}trsm_ffi" for p in "sdcz"], _triangular_solve),
        (_vector_targets(), _batched(1)),
    ]
    for names, rule in tables:
        for target in names:
            known_rules.add(target, rule)


_enter_known_targets()


def has_users_rule(module: Module) -> bool:
    """Whether the module calls a target that `register_rule` declared in this process."""
    calls = (i for i in module.instructions if i.opcode == "custom-call")
    return any(registered_name(call) in users_calls for call in calls)
