"""Why: chains of causes, and the places where neighbours disagree, so that data moves.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hlosharding.compiler import CollectiveExplanation, Explanations, SplitExplanation
from hlosharding.partitioner import SplitAlternative, SplitAlternatives
from hlosharding.propagation import ChainLink, Explanation, LostOffer
from hlosharding.report.model import Column, Facts, Kind, Row, Shown, Table, Tree, View, Within, fields_of
from hlosharding.sharding import MeshInfo

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


def explanations_view(told: Sequence[Explanation | LostOffer], *, whole: bool = False) -> View:
    """Of each value the chain of causes, the value first, and conflicts; `whole`: also the middle of long chains."""
    facts = Facts.of(
        explanations=[_explanation_facts(one) for one in told if isinstance(one, Explanation)],
        conflicts=[_lost_facts(one) for one in told if isinstance(one, LostOffer)],
    )
    trees = [Tree(one.text(whole=whole) if isinstance(one, Explanation) else str(one)) for one in told]
    return View((facts, *trees), schema="hlosharding.explanation/1")


def split_view(explanation: SplitExplanation) -> View:
    """The chain of causes of an op's sharding, and how else the op could be split: the split that was taken first.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> split_view(hs.partition(hs.load(text)).explain("x")).parts[-1].empty
    'not split by its dims: there is no choice'
    """
    causes = [explanation.cause] if explanation.cause is not None else []
    table = _splits(explanation.name, explanation.splits, explanation.mesh)
    facts = Facts({"name": explanation.name, "explanations": [_explanation_facts(one) for one in causes]})
    return View((facts, *(Tree(one.text()) for one in causes), table), schema="hlosharding.split/1")


def _splits(name: str, splits: SplitAlternatives | None, mesh: MeshInfo | None) -> Table:
    """How an op is split, and how else it could be."""
    factors = f" ({' '.join(splits.chosen.factors)})" if splits is not None else ""
    return Table(
        title=f"Splits of %{name}{factors}",
        key="splits",
        columns=_SPLITS,
        rows=[_split_row(one) for one in ((splits.chosen, *splits.others) if splits is not None else ())],
        mesh=mesh,
        empty="not split by its dims: there is no choice",
    )


def collective_explanations_view(explanations: Sequence[CollectiveExplanation]) -> View:
    """Of each collective: the op that needed it, why that op and what it reads lie as they do, how else the op could be
    split, and what would remove the collective.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\\n"
    >>> text += "  ROOT y = f32[8] reverse(x), dimensions={0}, sharding={replicated}\\n}"
    >>> view = collective_explanations_view([hs.partition(hs.load(text)).explain(0)])
    >>> print(view.parts[1].view.parts[1].text.splitlines()[1])
      needed by %y (reverse): elements moved by a reverse
    """
    parts = [Within("", _collective_view(one)) for one in explanations]
    facts = Facts({"collectives": [part.view for part in parts]})
    return View((facts, *(replace(part, in_record=False) for part in parts)), schema="hlosharding.collective/1")


def answers_view(found: Explanations) -> View:
    """Answers of all kinds, one below the other.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}"
    >>> len(answers_view(hs.explain(hs.load(text), "x")).parts)
    2
    """
    views = [_answer_view(one) for one in found.answers]
    parts = (Within("", view, in_record=False) for view in views)
    return View((Facts({"answers": views}), *parts), schema="hlosharding.answers/1")


def _answer_view(one: Explanation | SplitExplanation | CollectiveExplanation | LostOffer) -> View:
    match one:
        case Explanation() | LostOffer():
            return explanations_view([one])
        case SplitExplanation():
            return split_view(one)
        case CollectiveExplanation():
            return collective_explanations_view([one])


def _collective_view(one: CollectiveExplanation) -> View:
    op, found = one.needed_by, one.collective
    facts = Facts.of(
        number=one.number,
        **fields_of(found, "name kind bytes_per_device location reason"),
        needed_by=op.name if op is not None else None,
        explanations=[_explanation_facts(one.wanted)] if one.wanted is not None else [],
        operands=[{"number": n, **_explanation_facts(why)} for n, why in one.operands],
        removals=one.removals,
        ours=None if one.ours is None else [each.name for each in one.ours],
    )
    chains = [Tree(f"{what}\n{chain}") for what, chain in one.chains]
    splits = [_splits(op.name, one.splits, one.mesh)] if op is not None and one.splits is not None else []
    removals = Tree("\n".join(("what would remove it, or make it smaller", *(f"  {line}" for line in one.removals))))
    return View((facts, Tree(one.head), *([removals] if one.removals else []), *chains, *splits))


def _split_row(one: SplitAlternative) -> Row:
    return {
        "split": one.space,
        "factors": one.factors,
        "comm_bytes": one.comm_bytes,
        "time_s": one.seconds,
        **fields_of(one, "work memory_bytes"),
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
        **fields_of(link, "name leaf opcode location sharding"),
        "from": link.direction,
        **fields_of(link, "level also is_given called_from"),
    }
