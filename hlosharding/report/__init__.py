"""What users see: views of shardings, collectives, costs and explanations, for terminals, for notebooks and as JSON.

Floor: report.  Only reads what the rooms below found.  A `..._view` says what there is to see; `show` and `to_text`,
`to_html` and `to_record` render it.
"""

from hlosharding.report.accidents import accidents_view
from hlosharding.report.changes import difference_view, suggestions_view, trace_view
from hlosharding.report.collectives import collectives_view
from hlosharding.report.costs import comparison_view, cost_view
from hlosharding.report.drawing import draw, draw_svg
from hlosharding.report.executables import executable_view
from hlosharding.report.explanations import (
    answers_view,
    collective_explanations_view,
    conflicts_view,
    explanations_view,
    split_view,
)
from hlosharding.report.json import Record
from hlosharding.report.model import (
    Column,
    Drawing,
    Facts,
    Figure,
    Kind,
    Label,
    Lines,
    Row,
    Shown,
    Table,
    Text,
    Tree,
    View,
    Within,
)
from hlosharding.report.pareto import pareto_svg
from hlosharding.report.plans import exported_view, reshard_view
from hlosharding.report.programs import module_view, overrides_view, partitioned_view, warnings_view
from hlosharding.report.rankings import calibration_view, ranking_view
from hlosharding.report.searches import search_view
from hlosharding.report.sections import Report, program_svg, report
from hlosharding.report.shardings import parameters_view, propagation_view, sharding_view
from hlosharding.report.streams import simulation_view
from hlosharding.report.terminal import show, to_text
from hlosharding.report.timelines import schedule_view, timeline_svg, timeline_text
from hlosharding.report.views import to_html, to_record

__all__ = [
    "Column",
    "Drawing",
    "Facts",
    "Figure",
    "Kind",
    "Label",
    "Lines",
    "Record",
    "Report",
    "Row",
    "Shown",
    "Table",
    "Text",
    "Tree",
    "View",
    "Within",
    "accidents_view",
    "answers_view",
    "calibration_view",
    "collective_explanations_view",
    "collectives_view",
    "comparison_view",
    "conflicts_view",
    "cost_view",
    "difference_view",
    "draw",
    "draw_svg",
    "executable_view",
    "explanations_view",
    "exported_view",
    "module_view",
    "overrides_view",
    "parameters_view",
    "pareto_svg",
    "partitioned_view",
    "program_svg",
    "propagation_view",
    "ranking_view",
    "report",
    "reshard_view",
    "schedule_view",
    "search_view",
    "sharding_view",
    "show",
    "simulation_view",
    "split_view",
    "suggestions_view",
    "timeline_svg",
    "timeline_text",
    "to_html",
    "to_record",
    "to_text",
    "trace_view",
    "warnings_view",
]
