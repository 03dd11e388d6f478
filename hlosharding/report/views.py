"""Every value that users get, as HTML for a notebook and as a record for JSON: one table of both.

Floor: report.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from html import escape
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from hlosharding.compiler import Partitioned
from hlosharding.cost import CostReport, Simulation
from hlosharding.errors import HloShardingError
from hlosharding.ir import Module
from hlosharding.mesh_propagation import AxisPropagation
from hlosharding.propagation import Explanation, LostOffer, Propagation
from hlosharding.report import records
from hlosharding.report.costs import show_cost, show_cost_by
from hlosharding.report.drawing import draw_svg
from hlosharding.report.records import Record
from hlosharding.report.shardings import show_shardings
from hlosharding.report.simulation import show_critical_path
from hlosharding.report.summary import show_partitioned
from hlosharding.reshard import ReshardPlan
from hlosharding.search import Suggestion
from hlosharding.sharding import HloSharding
from hlosharding.spmd import Collective

_WIDTH = 160
_STYLE = "white-space:pre;overflow-x:auto;line-height:normal;font-family:Menlo,Consolas,monospace"
_LARGEST_DRAWING = 256  # tiles


def to_html(value: Any) -> str:
    """What a notebook shows of a value of this library: tables, drawings, or the text of `str`.

    >>> to_html(HloSharding.parse("{devices=[2]<=[2]}")).startswith("<pre>{devices=[2]&lt;=[2]}</pre><svg ")
    True
    """
    view = next((view for kind, view in _HTML.items() if isinstance(value, kind)), None)
    return view(value) if view is not None else f"<pre>{escape(str(value))}</pre>"


def to_record(value: Any) -> Record:
    """A value of this library as plain dicts and lists, for `json`; `docs/cli.md` has the keys.

    Raises HloShardingError for what has no record.

    >>> to_record(HloSharding.parse("{devices=[2]<=[2]}"))["tiles"]
    [[0], [1]]
    """
    record = next((record for kind, record in _RECORDS.items() if isinstance(value, kind)), None)
    if record is None:
        known = ", ".join(sorted(kind.__name__ for kind in _RECORDS))
        raise HloShardingError(f"a {type(value).__name__} has no record", remedy=f"there are records of {known}")
    return record(value)


def _rendered(*renderables: Any) -> str:
    console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False)
    console.print(*renderables)
    form = f'<pre style="{_STYLE}">{{code}}</pre>'
    return console.export_html(inline_styles=True, code_format=form)


def _sharding(sharding: HloSharding) -> str:
    text = f"<pre>{escape(str(sharding))}</pre>"
    if sharding.kind != "tiled" or sharding.num_tiles > _LARGEST_DRAWING:
        return text
    return text + draw_svg(sharding, sharding.data_dims)


def _explanation(explanation: Explanation) -> str:
    first, *rest = map(escape, str(explanation).splitlines())
    return "<pre>" + "\n".join([f"<b>{first}</b>", *rest]) + "</pre>"


def _plan(plan: ReshardPlan) -> str:
    sides = (plan.source, plan.target)
    drawn = [draw_svg(side, plan.shape.dims) for side in sides if side.num_tiles <= _LARGEST_DRAWING]
    return f"<pre>{escape(str(plan))}</pre>" + "&nbsp;".join(drawn)


def _cost(cost: CostReport) -> str:
    return _rendered(Group(show_cost(cost), show_cost_by(cost)))


def _simulation(simulation: Simulation) -> str:
    return _rendered(Group(Text(str(simulation)), show_critical_path(simulation)))


_HTML: dict[type, Callable[[Any], str]] = {
    HloSharding: _sharding,
    Explanation: _explanation,
    Propagation: lambda found: _rendered(show_shardings(found)),
    Partitioned: lambda partitioned: _rendered(show_partitioned(partitioned)),
    ReshardPlan: _plan,
    CostReport: _cost,
    Simulation: _simulation,
}

_RECORDS: dict[type, Callable[[Any], Record]] = {
    HloSharding: records.sharding_record,
    Module: records.module_record,
    Propagation: records.propagation_record,
    Explanation: lambda explanation: records.explanations_record([explanation]),
    LostOffer: lambda lost: records.conflicts_record([lost]),
    Suggestion: lambda suggestion: records.suggestions_record([suggestion]),
    AxisPropagation: records.axes_record,
    Partitioned: records.partitioned_record,
    Collective: records.collective_record,
    CostReport: records.cost_record,
    ReshardPlan: records.reshard_record,
    Simulation: records.simulation_record,
}
