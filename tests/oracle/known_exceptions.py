"""Where we differ from live XLA on purpose: at most ten entries, each with a minimal module and why XLA is wrong there.

`differential` counts what an entry explains apart from what nothing explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.oracle_program import Answer

Differences = dict[str, tuple[object, object]]


@dataclass(frozen=True, slots=True)
class KnownException:
    """One way in which live XLA is wrong."""

    name: str
    reason: str
    hlo: str
    """A minimal module that shows it."""
    applies: Callable[[Answer, Differences], bool]
    """Does it explain what was found on a module?"""
    options: dict[str, Any] = field(default_factory=dict)


def _died(answer: Answer, different: Differences) -> bool:
    return answer.crashed


def _unreduced(answer: Answer, different: Differences) -> bool:
    """Ours keeps an unreduced subgroup where XLA has none; what follows from the loss may differ anywhere behind it."""
    kept = (ours for ours, theirs in different.values() if "unreduced" not in str(theirs))
    return not answer.crashed and any("unreduced" in str(ours) for ours in kept)


KNOWN: tuple[KnownException, ...] = (
    KnownException(
        name="XLA ends the process",
        reason="A check fails inside XLA on a module that its own verifier takes (here: manual and tiled operands of"
        " one op).  There is no answer to compare with; we answer, or raise PropagationError naming the instruction.",
        hlo="""HloModule m

ENTRY %main {
  %x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  %y = f32[8] parameter(1), sharding={devices=[4]<=[4]}
  %a = f32[8] add(%x, %y)
  ROOT %r = (f32[8]) tuple(%a)
}
""",
        applies=_died,
    ),
    KnownException(
        name="merging drops an unreduced subgroup",
        reason="Merging two partial tilings, XLA makes the devices of an unreduced subgroup plain copies of each other:"
        " partial sums would be read as if they were whole.  We keep the subgroup, so the value stays a sum to be made.",
        hlo="""HloModule m

ENTRY %main {
  %x = f32[8,8] parameter(0), sharding={devices=[2,1,2,2]<=[8] last_tile_dims={unreduced, replicated}}
  %y = f32[8,8] parameter(1), sharding={devices=[1,2,2,2]<=[8] last_tile_dims={unreduced, replicated}}
  %a = f32[8,8] add(%x, %y)
  ROOT %r = (f32[8,8]) tuple(%a)
}
""",
        applies=_unreduced,
    ),
)


def explanation(answer: Answer, different: Differences) -> KnownException | None:
    """The entry that explains it; None where nothing does."""
    return next((entry for entry in KNOWN if entry.applies(answer, different)), None)
