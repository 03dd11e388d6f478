"""Where we differ from live XLA on purpose: at most ten entries, each with a minimal module and why XLA is wrong there.

`differential` counts what an entry explains apart from what nothing explains.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from hlosharding.sharding import HloSharding
from tests.oracle.oracle_program import Answer

_TILED_TUPLE = re.compile(r"= \(.*\) (scan|all-reduce|call-start)\(.*, sharding=\{devices=")
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
    refused: bool = False
    """Do we raise PropagationError?"""
    ours: dict[str, str] = field(default_factory=dict)
    """Instruction -> our answer, where the answers differ."""
    theirs: dict[str, str] = field(default_factory=dict)
    """Live XLA's, as it was recorded."""


def _died(answer: Answer, different: Differences) -> bool:
    return answer.crashed


def _unreduced(answer: Answer, different: Differences) -> bool:
    """Ours keeps an unreduced subgroup where XLA has none; what follows from the loss may differ anywhere behind it."""
    pairs = [(str(ours), str(theirs)) for ours, theirs in different.values() if "unreduced" not in str(theirs)]
    if answer.crashed or not pairs:
        return False
    if any("unreduced" in ours for ours, _ in pairs):
        return True
    # A tiling that XLA merged with it has more tiles than ours, which has not been merged.
    return "unreduced" in answer.hlo and any(_tiles(theirs) > _tiles(ours) for ours, theirs in pairs)


def _tiles(text: str) -> int:
    return 0 if text in ("None", "True", "False") else sum(leaf.num_tiles for leaf in HloSharding.parse(text).leaves)


def _too_few_dims(answer: Answer, different: Differences) -> bool:
    error = str(different.get("error", ""))
    return not answer.crashed and ("cannot be reshaped to" in error or "has no data dim" in error)


def _tiled_tuple(answer: Answer, different: Differences) -> bool:
    return not answer.crashed and _TILED_TUPLE.search(answer.hlo) is not None


KNOWN: tuple[KnownException, ...] = (
    KnownException(
        name="XLA ends the process",
        reason="A check fails inside XLA on a module that its own verifier takes: here a conversion into a manual"
        " region that has no sharding of its own; elsewhere tilings over different numbers of devices, manual beside"
        " tiled, an unreduced operand.  There is no answer to compare with; we answer, or raise PropagationError.",
        hlo="""HloModule m

ENTRY %main {
  %x = f32[6,2] parameter(0)
  %y = f32[6,2] custom-call(%x), custom_call_target="Sharding",
    sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}, backend_config="unspecified_dims=[1]"
  %s = f32[3,2] custom-call(%y), custom_call_target="SPMDFullToShardShape", backend_config="unspecified_dims=[1]"
  %n = f32[3,2] negate(%s)
  %m = f32[3,2] custom-call(%n), custom_call_target="Sharding",
    sharding={devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}, backend_config="unspecified_dims=[1]"
  ROOT %r = (f32[3,2]) tuple(%m)
}
""",
        applies=_died,
    ),
    KnownException(
        name="merging drops an unreduced subgroup",
        reason="Merging two partial tilings, XLA makes the devices of an unreduced subgroup plain copies of each"
        " other: partial sums would be read as if they were whole.  We keep the subgroup: a sum still to be made.",
        hlo="""HloModule m

ENTRY %main {
  %x = f32[8,8] parameter(0), sharding={devices=[2,1,2,2]<=[8] last_tile_dims={unreduced, replicated}}
  %y = f32[8,8] parameter(1), sharding={devices=[1,2,2,2]<=[2,2,2]T(2,1,0) last_tile_dims={unreduced, replicated}}
  %a = f32[8,8] add(%x, %y)
  ROOT %r = (f32[8,8]) tuple(%a)
}
""",
        applies=_unreduced,
        ours={"a": "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={unreduced}}"},
        theirs={"a": "{devices=[2,2,2]0,2,1,3,4,6,5,7 last_tile_dim_replicate}"},
    ),
    KnownException(
        name="a scalar's tiling on an array",
        reason="XLA lets the scalar bounds of a clamp give their sharding, which has no dims but those of its manual"
        " subgroup, to the array as it is; the next transpose then moves subgroup dims as if they were the array's."
        "  We raise PropagationError and name the instruction.",
        hlo="""HloModule m

ENTRY %main {
  %x = f32[5,6] parameter(0)
  %c = f32[] parameter(1), sharding={devices=[2,2]<=[4] last_tile_dims={manual, replicated}}
  %clamp = f32[5,6] clamp(%c, %x, %c)
  %t = f32[6,5] transpose(%clamp), dimensions={1,0}
  ROOT %r = (f32[6,5]) tuple(%t)
}
""",
        applies=_too_few_dims,
        refused=True,
        theirs={"t": "{devices=[2,2]<=[4] last_tile_dims={manual, replicated}}"},
    ),
    KnownException(
        name="an array's sharding on a tuple",
        reason="XLA gives a scan, whose result is a tuple, the sharding of its first operand as it is; likewise an"
        " all-reduce of several arrays, and the start of an asynchronous call that of an array behind the call.  No"
        " tuple can have that: XLA itself ends the process when an element is taken out.  We give it none.",
        hlo="""HloModule m

%step {
  %e = f32[16] parameter(0)
  %f = f32[16] parameter(1)
  %g = f32[16] add(%e, %f)
  ROOT %h = (f32[16], f32[16]) tuple(%g, %g)
}

ENTRY %main {
  %x = f32[8,16] parameter(0), sharding={devices=[2,2]<=[4]}
  %c = f32[16] parameter(1)
  %s = (f32[8,16], f32[16]) scan(%x, %c), dimensions={0}, num_carries=1, to_apply=%step
  ROOT %r = (f32[16]) tuple(%c)
}
""",
        applies=_tiled_tuple,
        ours={"s": "None"},
        theirs={"s": "{devices=[2,2]<=[4]}"},
    ),
)


def explanation(answer: Answer, different: Differences) -> KnownException | None:
    """The entry that explains it; None where nothing does."""
    return next((entry for entry in KNOWN if entry.applies(answer, different)), None)
