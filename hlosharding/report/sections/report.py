"""`hs.report`: a whole program, or a search for plans, section by section; shown anywhere, saved as one page.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hlosharding.collector import collector_waits
from hlosharding.compiler import Partitioned, partition
from hlosharding.cost import Machine, Topology
from hlosharding.errors import PartitionError
from hlosharding.ir import Module
from hlosharding.notebook import InNotebooks
from hlosharding.printable import printable
from hlosharding.propagation import Propagation
from hlosharding.report.figures import as_count
from hlosharding.report.model import Part, Picture, View, Within
from hlosharding.report.page import render_page
from hlosharding.report.programs import warnings_view
from hlosharding.report.searches import search_view
from hlosharding.report.sections.collectives import explain_dearest, rank_collectives, ranked_collectives_view
from hlosharding.report.sections.comparison import comparison_section
from hlosharding.report.sections.files import files_view
from hlosharding.report.sections.findings import findings_view
from hlosharding.report.sections.functions import functions_view
from hlosharding.report.sections.graph import graph_view, parts_of
from hlosharding.report.sections.memory import memory_view
from hlosharding.report.sections.picture import parts_svg
from hlosharding.report.sections.remedies import remedies_view
from hlosharding.report.sections.replicated import copies_of, replicated_view
from hlosharding.report.sections.reported import ReportedProgram
from hlosharding.report.sections.roofline import roofline_view
from hlosharding.report.sections.shardings import shardings_view
from hlosharding.report.sections.summary import summary_view
from hlosharding.report.streams import simulation_view, timeline_bars
from hlosharding.report.terminal import to_text
from hlosharding.report.timelines import schedule_view, timeline_svg
from hlosharding.search import SearchResult
from hlosharding.whole_files import write_whole

_SCHEMA = "hlosharding.report/2"
_MOST_OF_PATH = 5
_MOST_STEPS = 5000
"""Of a schedule that is drawn."""


@dataclass(frozen=True, repr=False)
class Report(InNotebooks):
    """What there is to say of a program.  `str` prints tables, a notebook shows them, `save` writes a page."""

    title: str
    view: View

    def to_page(self) -> str:
        """One self-contained HTML page, without network access."""
        return render_page(self.view, title=self.title)

    def save(self, path: Any) -> None:
        """Write the page, whole or not at all.  Raises HloShardingError where it cannot be written."""
        write_whole(path, self.to_page())

    def __repr__(self) -> str:
        # A notebook keeps it beside what it shows: the fields are the whole program again.
        return f"Report({self.title!r}, {len(self.view.parts)} sections)"

    def __str__(self) -> str:
        return f"{printable(self.title)}\n{to_text(self.view)}"


@collector_waits
def report(
    program: Partitioned | Propagation | Module | SearchResult,
    *,
    against: Any = None,
    names: tuple[str, str] = ("this program", "the other"),
    search: SearchResult | None = None,
    suggest: bool = False,
    num_partitions: int | None = None,
    machine: Machine | Topology | None = None,
    path: Any = None,
) -> Report:
    """A program's time, memory, collectives, shardings and replicated values, each with its cause; a page for `path`.

    `program`: partitioned, or partitioned here for `num_partitions` and `machine`; or what `hs.search` found.
    `against`: another Partitioned, a per-device Module (XLA's own dump among them) or what XLA compiled, to compare
    with; `names` of both.  `search`: a section with its plans.  `suggest`: for the dearest collectives try annotations
    that save time; takes minutes for programs of 10,000 ops.  Raises what `partition` raises.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   ROOT y = f32[8,4] negate(x)
    ... }'''
    >>> found = hs.report(hs.load(text), machine=hs.machines.h100(2))
    >>> found.title, [part.title for part in found.view.parts][:3]
    ('m on 2 devices, h100(2)', ['Worst findings', 'Summary', 'Timeline'])
    """
    if isinstance(program, SearchResult):
        made = Report(f"plans for {program.machine.name}", View((_searched(program),), schema=_SCHEMA))
    else:
        if not isinstance(program, Partitioned):
            program = partition(program, num_partitions=num_partitions, machine=machine)
        elif (num_partitions, machine) != (None, None):
            what = f"the program is partitioned already, for {program.machine.name}"
            raise PartitionError(what, remedy="leave out machine and num_partitions, or give what it was made from")
        about = ReportedProgram(program)
        compared = [_section("comparison", comparison_section(about, against, names))] if against is not None else []
        found = [_searched(search)] if search is not None else []
        view = View((*_sections(about, suggest=suggest), *compared, *found), schema=_SCHEMA)
        count = f"{as_count(program.num_partitions)} device{'' if program.num_partitions == 1 else 's'}"
        made = Report(f"{program.module.name} on {count}, {program.machine.name}", view)
    if path is not None:
        made.save(path)
    return made


def _sections(about: ReportedProgram, *, suggest: bool) -> Iterator[Within]:
    groups, copies = rank_collectives(about), copies_of(about)
    told = explain_dearest(about, groups)
    remedies = remedies_view(about, groups) if suggest and about.is_explained else None
    yield _section("findings", findings_view(about, groups, copies, told, remedies))
    yield _section("summary", View((*summary_view(about).parts, *warnings_view(about.partitioned).parts)))
    yield _section("timeline", _timeline(about))
    yield _section("collectives", ranked_collectives_view(about, groups, told))
    if remedies is not None:
        yield _section("remedies", remedies)
    parts = parts_of(about)
    drawn = Picture(parts_svg(about, parts), title="The program, block by block")
    yield _section("program", View((drawn, *graph_view(about, parts).parts)))
    yield _section("functions", functions_view(about))
    yield _section("roofline", roofline_view(about))
    yield _section("files", files_view(about))
    if about.is_explained:
        yield _section("replicated", replicated_view(about, copies))
    yield _section("memory", memory_view(about))
    if about.is_explained:
        yield _section("shardings", shardings_view(about))


_TITLES = {"findings": "Worst findings", "files": "Source files", "replicated": "Replicated values", "search": "Plans"}
"""Of sections whose title is another than their key."""
_NOTES = {
    "findings": "What takes most of the time first; a row opens to its causes, and leads to where else it is seen.",
    "timeline": "One device of a simulated step: what it computes, and what it communicates meanwhile.",
    "collectives": "The dearest first. Why one is there, and what would remove it: explain '#0', or its row of the"
    " page.",
    "remedies": "For the dearest collectives, the annotation that saves most, by partitioning anew.",
    "program": "In program order; layers that repeat stand there once.",
    "functions": "Priced time by who calls what, then bytes received and bytes held, by function.",
    "roofline": "What each group of ops reaches of what the chip can do. A circle is as large as the time it takes.",
    "files": "Where the priced time goes, without overlap.",
    "replicated": "Values of which several devices hold the same piece, and the bytes that a full split would save.",
    "memory": "Of one device in the simulated step. Here no op writes over what it reads; the peak above allows for"
    " it.",
}


def _section(key: str, view: View) -> Within:
    return Within(key, view, title=_TITLES.get(key, key.capitalize()), note=_NOTES.get(key, ""))


def _timeline(about: ReportedProgram) -> View:
    """Without what only a record has: the list of all events."""
    view = simulation_view(about.simulation, most=_MOST_OF_PATH)
    numbers = {one.collective.name: one.number for one in about.collectives}
    bars = timeline_bars(about.simulation, numbers)
    parts = (part for part in view.parts if getattr(part, "is_shown", True))
    return View(tuple(replace(part, bars=bars) if isinstance(part, Picture) else part for part in parts))


def _searched(found: SearchResult) -> Within:
    parts: tuple[Part, ...] = search_view(found).parts
    if found.table and found.table[0].fits:
        run = found.schedule.simulate(found.machine)
        is_drawn = sum(1 for _ in run.timeline) <= _MOST_STEPS
        drawn = [Picture(timeline_svg(run), title="One step by the best plan")] if is_drawn else []
        parts = (*parts, Within("best", View((*drawn, *schedule_view(run).parts))))
    return _section("search", View(parts))
