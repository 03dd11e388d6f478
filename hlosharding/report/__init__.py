"""What users see: tables of shardings, collectives, costs and warnings for a terminal, and the same facts as records.

Floor: report.  Only reads what the rooms below found; `show_...` gives something `rich` prints, `..._record` something
`json` writes.
"""

from hlosharding.report.changes import show_difference, trace_lines
from hlosharding.report.collectives import show_collectives
from hlosharding.report.conflicts import show_conflicts
from hlosharding.report.costs import show_comparison, show_cost, show_cost_by
from hlosharding.report.drawing import draw, draw_svg
from hlosharding.report.figures import as_bytes, as_count, as_seconds
from hlosharding.report.records import (
    Record,
    axes_record,
    collective_record,
    conflicts_record,
    cost_record,
    difference_record,
    explanations_record,
    module_record,
    partitioned_record,
    propagation_record,
    reshard_record,
    sharding_record,
    simulation_record,
    suggestions_record,
    trace_record,
)
from hlosharding.report.sharding_overrides import show_sharding_overrides
from hlosharding.report.shardings import show_activations, show_parameters, show_shardings
from hlosharding.report.simulation import show_critical_path
from hlosharding.report.summary import show_partitioned, show_warnings
from hlosharding.report.tables import add_row, new_table
from hlosharding.report.views import to_html, to_record

__all__ = [
    "Record",
    "add_row",
    "as_bytes",
    "as_count",
    "as_seconds",
    "axes_record",
    "collective_record",
    "conflicts_record",
    "cost_record",
    "difference_record",
    "draw",
    "draw_svg",
    "explanations_record",
    "module_record",
    "new_table",
    "partitioned_record",
    "propagation_record",
    "reshard_record",
    "sharding_record",
    "show_activations",
    "show_collectives",
    "show_comparison",
    "show_conflicts",
    "show_cost",
    "show_cost_by",
    "show_critical_path",
    "show_difference",
    "show_parameters",
    "show_partitioned",
    "show_sharding_overrides",
    "show_shardings",
    "show_warnings",
    "simulation_record",
    "suggestions_record",
    "to_html",
    "to_record",
    "trace_lines",
    "trace_record",
]
