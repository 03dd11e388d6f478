"""The exception family: every error says what is wrong, where, and what to do.

Floor: ground.  Standard library only.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeGuard


def is_count(value: Any, least: int = 1) -> TypeGuard[int]:
    """Is it a whole number from `least` on?  For checks of what a caller gives.

    >>> import numpy as np
    >>> [is_count(value) for value in (1, np.int32(2), 0, 1.5, float("nan"), True, None, "3")]
    [True, True, False, False, False, False, False, False]
    """
    # To Python True is a whole number, too.
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


class HloShardingError(Exception):
    """Base of all errors raised on purpose by hlosharding.

    `what` states the fact, `where` the instruction, source line or position, `remedy` the next step.

    >>> str(HloShardingError("3 tiles on 2 devices", where="%dot.1 (model.py:31)", remedy="use a divisor of 2"))
    '3 tiles on 2 devices; at %dot.1 (model.py:31); use a divisor of 2'
    """

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__("; ".join(p for p in (what, where and f"at {where}", remedy) if p))


class ShardingError(HloShardingError, ValueError):
    """A sharding that contradicts itself, or does not fit a shape or a device count."""


class ShardingParseError(ShardingError):
    """Text that is no sharding; `position` is the offset of the first character that cannot stand.

    >>> print(ShardingParseError("unknown word 'foo'", text="{foo}", position=1))
    unknown word 'foo'; at position 1: {>>>foo}
    """

    def __init__(self, what: str, *, text: str, position: int, remedy: str | None = None) -> None:
        self.text, self.position = text, position
        super().__init__(what, where=marked(text, position), remedy=remedy)


def marked(text: str, position: int) -> str:
    """A position in a text, as errors show it.

    >>> marked("8/2/2/16 fsdp fsdp", 14)
    'position 14: 8/2/2/16 fsdp >>>fsdp'
    """
    return f"position {position}: {text[max(0, position - 20) : position]}>>>{text[position : position + 20]}"


class ModuleError(HloShardingError, ValueError):
    """A module whose graph, shapes or attributes contradict each other."""


class LoadError(HloShardingError, ValueError):
    """A file, text or object that is no program we can read."""


class TraceError(HloShardingError, TypeError, ValueError):
    """A Python function, or its arguments, that cannot be traced; JAX raises one or the other for these."""


class AnnotationError(HloShardingError, ValueError):
    """An annotation that names nothing, or does not fit what it names."""


class PlanError(HloShardingError, ValueError):
    """A plan file that says nothing sensible, or a program that does worse than the plan's recorded figures."""


class RuleError(HloShardingError, ValueError):
    """A sharding rule that contradicts itself or its op."""


class RuleReplacedWarning(UserWarning):
    """A custom call had a rule already; from now on the new one holds."""


class PropagationError(HloShardingError, ValueError):
    """A module whose shardings cannot be propagated (conflicting devices, wrong vector sizes ...)."""


class PartitionError(HloShardingError, ValueError):
    """A module, or a sharding in it, that cannot be partitioned."""


class CostError(HloShardingError, ValueError):
    """A machine description or a question to the cost model that makes no sense."""


class ScheduleError(HloShardingError, ValueError):
    """A schedule that contradicts itself: types, devices, order, reductions, memory; or text that is none."""


class ExecutionError(HloShardingError, RuntimeError):
    """A partitioned program that cannot run here (too few devices, wrong arguments ...)."""
