"""A custom call is partitioned as a JAX function that computes the same: its twin.

Floor: rules.  The rule is composed of those of the twin's ops, and then tried: where pieces of small arguments do not
make up the whole, the dim is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, TypeAlias

from hlosharding import xla_bridge
from hlosharding.errors import RuleError
from hlosharding.ir import Instruction, Module, Shape
from hlosharding.rules.composition import composed_signature
from hlosharding.rules.custom_calls import CallCost, registered_name
from hlosharding.rules.signature import Signature, Whole
from hlosharding.rules.trials import Function, Trial

_Shapes: TypeAlias = tuple[Shape, ...]
"""Of a call: its result's, and its operands'."""

_SMALL = (4, 16, 64, 256)
"""Of factors the most in a trial; in this order, for a function may not take small ones."""


@dataclass(eq=False)
class Twin:
    """What stands for a custom call in questions of how it may be split, and of what that costs."""

    target: str
    function: Function
    kernel: Function | None = None
    """What calls it, where that runs here."""
    _signatures: dict[_Shapes, Signature] = field(default_factory=dict[_Shapes, Signature])
    _costs: dict[_Shapes, CallCost] = field(default_factory=dict[_Shapes, CallCost])
    _trials: dict[Any, Trial | Exception] = field(default_factory=dict[Any, Any])

    def signature(self, inst: Instruction) -> Signature:
        """For the shapes of a call.  Raises RuleError where it is no twin for them."""
        key = _shapes(inst)
        if key not in self._signatures:
            self._signatures[key] = self._tried(inst)
        return self._signatures[key]

    def cost(self, inst: Instruction) -> CallCost:
        """The twin's arithmetic; of memory what any kernel must read and write."""
        key = _shapes(inst)
        if key not in self._costs:
            figures: dict[str, float] = self._lowered(inst).cost_analysis() or {}
            moved = float(sum(shape.byte_size for shape in key))
            self._costs[key] = CallCost(figures.get("flops", 0.0), moved, figures.get("transcendentals", 0.0))
        return self._costs[key]

    def _lowered(self, inst: Instruction) -> Any:
        import jax

        shapes = [jax.ShapeDtypeStruct(operand.shape.dims, operand.shape.dtype) for operand in inst.operands]
        try:
            # The parameters of the program are to be the operands of the call, one by one.
            lowered = xla_bridge.jit(self.function, keep_unused=True).lower(*shapes)
        except Exception as error:  # whatever the user's function raises
            given = ", ".join(str(operand.shape) for operand in inst.operands)
            raise self._error(inst, f"cannot be traced for {given}: {error}") from error
        made = [Shape.from_dtype(leaf.dtype, leaf.shape) for leaf in jax.tree.leaves(lowered.out_info)]
        if made != [*inst.shape.leaves]:
            raise self._error(inst, f"gives {', '.join(map(str, made)) or 'nothing'}, and the call {inst.shape}")
        return lowered

    def _tried(self, inst: Instruction) -> Signature:
        module = Module.from_proto(xla_bridge.lowered_to_hlo_proto(self._lowered(inst)))
        # The rule of such a function would ask for itself while it is made, without end.
        if any(op.opcode == "custom-call" and registered_name(op) == self.target for op in module.instructions):
            raise self._error(inst, "calls the kernel itself")
        found = composed_signature(module)
        # Tried once before any factor is: what cannot be run, or gives other numbers than the kernel, is an error also
        # where no factor may be split.
        next(self._trials_of(found, module, inst))
        factors = (
            factor if self._may_split(n, found, module, inst) else replace(factor, owes=Whole())
            for n, factor in enumerate(found.factors)
        )
        return replace(found, factors=tuple(factors))

    def _may_split(self, factor: int, signature: Signature, module: Module, inst: Instruction) -> bool:
        """By the smallest arguments whose halves the functions take."""
        if isinstance(signature.factors[factor].owes, Whole):
            return False
        verdicts = (trial.verdict(factor) for trial in self._trials_of(signature, module, inst))
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def _trials_of(self, signature: Signature, module: Module, inst: Instruction) -> Iterator[Trial]:
        """On larger and larger arguments; each runs once for all calls of which it is one."""
        is_run, trial = False, None
        for most in _SMALL:
            small = replace(signature, factors=tuple(replace(f, size=min(f.size, most)) for f in signature.factors))
            if small not in self._trials:
                self._trials[small] = self._run(small, module, inst)
            trial = self._trials[small]
            if isinstance(trial, Trial):
                is_run = True
                yield trial
        if not is_run:
            raise self._error(inst, f"cannot be run on small arguments: {trial}")

    def _run(self, signature: Signature, module: Module, inst: Instruction) -> Trial | Exception:
        functions = [self.function] if self.kernel is None else [self.function, self.kernel]
        try:
            trial = Trial(functions, signature, [operand.shape for operand in inst.operands], _tolerance(module))
        except Exception as refusal:  # noqa: BLE001  (whatever the user's functions raise)
            return refusal
        if not trial.is_agreed:
            raise self._error(inst, "gives other numbers than the kernel")
        return trial

    def _error(self, inst: Instruction, what: str) -> RuleError:
        return RuleError(
            f"{getattr(self.function, '__name__', self.function)!s}, like which {self.target!r} is partitioned, {what}",
            where=f"{inst!r} {inst.location}".strip(),
            remedy="let it be of JAX's own ops, and take and give arrays like those of the call",
        )


def _shapes(inst: Instruction) -> _Shapes:
    return (inst.shape, *(operand.shape for operand in inst.operands))


def _tolerance(module: Module) -> float:
    """Half the digits of the coarsest numbers that a program computes with."""
    import ml_dtypes  # knows numpy's types, too

    dtypes = {leaf.dtype for op in module.instructions for leaf in op.shape.leaves if leaf.is_floating}
    limits: list[Any] = [ml_dtypes.finfo(dtype) for dtype in dtypes]
    return sqrt(max((float(limit.eps) for limit in limits), default=0.0))
