"""Why: chains of causes, and the places where neighbours disagree, so that data moves.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.compiler import SplitExplanation
from hlosharding.partitioner import SplitAlternative
from hlosharding.propagation import ChainLink, Explanation, LostOffer
from hlosharding.report.model import Column, Facts, Kind, Row, Shown, Table, Tree, View

_CONFLICTS = (
    Column(key="winner", heading="value"),
    Column(key="has", heading="has", kind=Kind.SHARDING, in_record=False),
    Column(key="held_since", heading="because of"),
    Column(key="loser", heading="neighbour"),
    Column(key="offered", heading="offers", kind=Kind.SHARDING),
    Column(key="offered_since", heading="because of"),
    Column(key="reason", heading="why it lost", kind=Kind.PROSE),
)

_SPLITS = (
    Column(key="split", heading="split", kind=Kind.SHARDING),
    Column(key="comm_bytes", heading="bytes received", kind=Kind.COUNT),
    Column(key="time_s", heading="predicted", kind=Kind.SECONDS),
    Column(key="work", heading="work", kind=Kind.SHARE),
    Column(key="memory_bytes", heading="memory", kind=Kind.COUNT, priority=1),
    Column(key="excluded", heading="why not", kind=Kind.PROSE),
)


def explanations_view(explanations: Sequence[Explanation], *, whole: bool = False) -> View:
    """Of each value the chain of causes, the value first; `whole`: also the middle of long chains."""
    facts = Facts({"explanations": [_explanation_facts(one) for one in explanations]})
    trees = [Tree(one.text(whole=whole)) for one in explanations]
    return View((facts, *trees), schema="hlosharding.explanation/1")


def split_view(explanation: SplitExplanation) -> View:
    """The chain of causes of an op's sharding, and how else the op could be split: the split that was taken first.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> split_view(hs.partition(hs.load(text)).explain("x")).parts[-1].empty
    'not split by its dims: there is no choice'
    """
    causes = [explanation.cause] if explanation.cause is not None else []
    splits = explanation.splits
    rows = [_split_row(one) for one in ((splits.chosen, *splits.others) if splits is not None else ())]
    factors = f" ({' '.join(splits.chosen.factors)})" if splits is not None else ""
    table = Table(
        title=f"Splits of %{explanation.name}{factors}",
        key="splits",
        columns=_SPLITS,
        rows=rows,
        mesh=explanation.mesh,
        empty="not split by its dims: there is no choice",
    )
    facts = Facts({"name": explanation.name, "explanations": [_explanation_facts(one) for one in causes]})
    return View((facts, *(Tree(one.text()) for one in causes), table), schema="hlosharding.split/1")


def _split_row(one: SplitAlternative) -> Row:
    return {
        "split": one.space,
        "factors": one.factors,
        "comm_bytes": one.comm_bytes,
        "time_s": one.seconds,
        "work": one.work,
        "memory_bytes": one.memory_bytes,
        "excluded": Shown(one.excluded or "taken", one.excluded),
    }


def _explanation_facts(explanation: Explanation) -> dict[str, Any]:
    return {
        "chain": [_link_facts(link) for link in explanation.links],
        "not_split_because": explanation.stopped,
        "conflicts": [_lost_facts(lost) for lost in explanation.conflicts],
    }


def conflicts_view(conflicts: Sequence[LostOffer]) -> View:
    """Every offer that lost, in program order, with the annotations to which both sides go back.

    >>> conflicts_view([]).parts[0].empty
    'none'
    """
    rows: list[Row] = [_lost_facts(lost) | {"has": lost.winner.sharding} for lost in conflicts]
    mesh = conflicts[0].winner.mesh if conflicts else None
    table = Table(title="Conflicts", key="conflicts", columns=_CONFLICTS, rows=rows, mesh=mesh, empty="none")
    return View((table,), schema="hlosharding.conflicts/1")


def _lost_facts(lost: LostOffer) -> dict[str, Any]:
    return {
        "winner": _place(lost.winner),
        "held_since": _place(lost.held_since),
        "loser": _place(lost.loser, f"{lost.role}: "),
        "role": lost.role,
        "offered": lost.offered,
        "offered_since": _place(lost.offered_since),
        "reason": lost.reason,
    }


def _place(link: ChainLink, role: str = "") -> Shown:
    where = f" at {link.location}" if link.location else ""
    return Shown(f"{role}{link.title}{where}", _link_facts(link))


def _link_facts(link: ChainLink) -> dict[str, Any]:
    return {
        "name": link.name,
        "leaf": link.leaf,
        "opcode": link.opcode,
        "location": link.location,
        "sharding": link.sharding,
        "from": link.direction,
        "level": link.level,
        "also": link.also,
        "is_given": link.is_given,
        "called_from": link.called_from,
    }
