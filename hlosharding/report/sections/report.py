"""`hs.report`: a whole program, or a search for plans, section by section.

Floor: report.
"""

from __future__ import annotations

from hlosharding.report.model import View, Within
from hlosharding.report.sections.collectives import ranked_collectives_view
from hlosharding.report.sections.files import files_view
from hlosharding.report.sections.graph import graph_view
from hlosharding.report.sections.replicated import replicated_view
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.sections.summary import summary_view
from hlosharding.report.sections.timeline import memory_view, timeline_view


def program_view(about: ReportedProgram) -> View:
    return View(
        (
            Within("summary", summary_view(about), title="Summary"),
            Within("collectives", ranked_collectives_view(about), title="Collectives", note="The dearest first."),
            Within(
                "graph", graph_view(about), title="Program", note="In program order; layers that repeat are one row."
            ),
            Within("files", files_view(about), title="Source files"),
            Within("replicated", replicated_view(about), title="Replicated values"),
            Within("memory", memory_view(about), title="Memory"),
            Within("timeline", timeline_view(about), title="Timeline"),
        ),
        schema="hlosharding.report/1",
    )
