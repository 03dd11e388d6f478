"""Which view shows which value: the one table that `to_html` and `to_record` ask.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlosharding.compiler import CollectiveExplanation, Explanations, Partitioned, SplitExplanation
from hlosharding.cost import Calibration, CostReport, Simulation
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module
from hlosharding.plans import Difference, ExportedPlan
from hlosharding.propagation import Explanation, LostOffer, Propagation
from hlosharding.registry import Registry
from hlosharding.report import html, json
from hlosharding.report.changes import difference_view, suggestions_view
from hlosharding.report.collectives import collective_view
from hlosharding.report.costs import cost_view
from hlosharding.report.explanations import (
    answers_view,
    collective_explanations_view,
    conflicts_view,
    explanations_view,
    split_view,
)
from hlosharding.report.json import Record
from hlosharding.report.model import Text, View
from hlosharding.report.plans import exported_view, reshard_view
from hlosharding.report.programs import module_view, partitioned_view
from hlosharding.report.rankings import calibration_view, ranking_view
from hlosharding.report.searches import improved_view, search_view
from hlosharding.report.sections import Report
from hlosharding.report.shardings import propagation_view, sharding_view
from hlosharding.report.streams import simulation_view
from hlosharding.report.timelines import schedule_view
from hlosharding.reshard import ReshardPlan
from hlosharding.schedule import ScheduleSimulation
from hlosharding.search import Improved, Ranking, SearchResult, Suggestion
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Collective

_OWN: dict[type, Callable[[Any], View]] = {
    HloSharding: sharding_view,
    Module: module_view,
    Propagation: propagation_view,
    Explanation: lambda explanation: explanations_view([explanation]),
    SplitExplanation: split_view,
    Explanations: answers_view,
    CollectiveExplanation: lambda explanation: collective_explanations_view([explanation]),
    LostOffer: lambda lost: conflicts_view([lost]),
    Difference: difference_view,
    ExportedPlan: exported_view,
    Suggestion: lambda suggestion: suggestions_view([suggestion]),
    Partitioned: partitioned_view,
    Collective: collective_view,
    CostReport: cost_view,
    ReshardPlan: reshard_view,
    Simulation: simulation_view,
    ScheduleSimulation: schedule_view,
    SearchResult: search_view,
    Improved: improved_view,
    Ranking: ranking_view,
    Report: lambda made: made.view,
    Calibration: calibration_view,
}
VIEWS: Registry[type, Callable[[Any], View]] = Registry("views", plugins=("hlosharding.mesh_propagation.view:VIEWS",))
"""Which shows a value, by its type."""
for _kind, _view in _OWN.items():
    VIEWS.add(_kind, _view)


def to_html(value: Any) -> str:
    """What a notebook shows of a value of this library, or of a view: tables, drawings, or the text of `str`.

    >>> "{devices=[2]&lt;=[2]}" in to_html(HloSharding.parse("{devices=[2]<=[2]}"))
    True
    """
    return html.render(_view_of(value) or View((Text(value),)))


def to_record(value: Any) -> Record:
    """A value of this library, or a view, as plain dicts and lists, for `json`; `docs/cli.md` has the keys.

    Raises HloShardingError for what has no record.

    >>> to_record(HloSharding.parse("{devices=[2]<=[2]}"))["tiles"]
    [[0], [1]]
    """
    view = _view_of(value)
    if view is None:
        known = ", ".join(sorted(kind.__name__ for kind in VIEWS))
        raise HloShardingError(f"a {type(value).__name__} has no record", remedy=f"there are records of {known}")
    return json.render(view)


def _view_of(value: Any) -> View | None:
    if isinstance(value, View):
        return value
    kind = next((kind for kind in VIEWS if isinstance(value, kind)), None)
    return VIEWS[kind](value) if kind is not None else None
