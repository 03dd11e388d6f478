"""What a view is: facts, tables, trees, drawings and texts, before anybody decides whether a terminal, a page or JSON.

Floor: report.  Knows nothing of programs and nothing of how it will be shown: `terminal`, `html` and `json` do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeAlias

from hlosharding.ir import Shape
from hlosharding.notebook import InNotebooks
from hlosharding.printable import printable, printable_lines
from hlosharding.sharding import HloSharding


class Kind(Enum):
    """What the cells of a column are: this decides how they read, and on which side they stand."""

    TEXT = auto()
    PROSE = auto()
    CODE = auto()
    """A line to paste."""
    LOCATION = auto()
    SHAPE = auto()
    SHARDING = auto()
    COUNT = auto()
    LARGE = auto()
    BYTES = auto()
    SECONDS = auto()
    RATIO = auto()
    SHARE = auto()
    NUMBER = auto()
    DIFFERENCE = auto()

    @property
    def is_figure(self) -> bool:
        """Figures stand to the right and stay on one line."""
        return self.value >= Kind.COUNT.value


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is a guess, or of another kind than its column."""

    value: float
    kind: Kind | None = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell that people read otherwise than programs: `%dot.2 at mlp.py:8` is a record of its own in JSON."""

    text: str
    raw: Any


@dataclass(frozen=True, slots=True)
class Thread:
    """A row's place on a page: `report.html#c12` leads to the row that has the name c12, and rows that have to do with
    each other lead to each other.
    """

    names: tuple[str, ...]
    related: tuple[str, ...] = ()
    """Names of other rows; of which there are none on the page, these are left out."""


Cell: TypeAlias = (
    "str | float | HloSharding | Shape | Figure | Shown | Thread | Mapping[str, Any] | Sequence[Any] | View | None"
)
Row = Mapping[str, Cell]


def fields_of(value: object, names: str) -> dict[str, Any]:
    """Cells that stand in a row under the names which they have in what the row is of.

    >>> fields_of(range(2, 9), "start stop")
    {'start': 2, 'stop': 9}
    """
    return {name: getattr(value, name) for name in names.split()}


def figures_of(value: object, names: str, *, is_exact: bool) -> dict[str, Figure]:
    """Likewise numbers, which are guesses unless they are exact."""
    return {name: Figure(getattr(value, name), is_exact=is_exact) for name in names.split()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a table shows of its rows under one heading."""

    key: str
    """Of the row's cell; in a record it has the same name."""
    heading: str
    kind: Kind = Kind.TEXT
    priority: int = 0
    """On a narrow terminal the column with the highest goes first; those with 0 stay."""
    sums: bool = False
    """Are the cells of rows that share one added up?  Else these rows agree in the column."""
    in_record: bool = True
    """False: only for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one kind.  A row may hold more than the columns show: a record has all of it.

    >>> table = Table(title="Loss", columns=(Column(key="step", heading="step", kind=Kind.COUNT),), rows=({"step": 1},))
    >>> table.columns[0].kind.is_figure
    True
    """

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    title: str = ""
    key: str = ""
    """Where the rows stand in a record; "": not there."""
    by: str = ""
    """Key of the cell by which a record names the rows; "": they are a list."""
    mesh: Any = None
    """Whose axis names the shardings take."""
    is_shown: bool = True
    joins: bool = False
    """Do rows that read alike share one?"""
    largest: str = ""
    """Key of the figure by which the rows are ordered, the largest first; "": they stay as they are."""
    most: int | None = None
    """So many rows are shown; one more sums up the others."""
    total: str = ""
    """Name of a last row with all sums; "": there is none."""
    empty: str = ""
    """What the first cell says where there are no rows."""
    breaks: frozenset[int] = frozenset()
    """Numbers of the rows above which there is a line."""
    line: str = ""
    """Where given, a row is a line of this form, `{key}` for each cell, and there is no grid."""
    detail: str = ""
    """Key of a cell that is a View: a page shows it below its row when the row is opened."""
    thread: str = ""
    """Key of a cell that is a Thread; no record has it."""


@dataclass(frozen=True, slots=True)
class Label:
    """How a named fact is shown: its name for people, and a note beside it."""

    key: str
    name: str
    note: str = ""
    kind: Kind = Kind.COUNT


@dataclass(frozen=True, slots=True)
class Facts:
    """Named facts of one thing.  A record has them all; those with a label are shown, as a table of three columns."""

    items: Row
    title: str = ""
    labels: tuple[Label, ...] = ()

    @classmethod
    def of(cls, **items: Cell) -> Facts:
        """For records alone.

        >>> Facts.of(flops=8.0).items
        {'flops': 8.0}
        """
        return cls(items)


@dataclass(frozen=True, slots=True)
class Text:
    """Plain lines: what `str` of the content says."""

    content: object
    style: str = ""

    @property
    def printable_text(self) -> str:
        """For people."""
        return printable_lines(str(self.content))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that a record has as a list of texts; `label` stands before each for people."""

    key: str
    lines: Sequence[str]
    label: str = ""
    style: str = ""

    @property
    def printable_text(self) -> str:
        """For people."""
        return "\n".join(self.label + printable(line) for line in self.lines)


@dataclass(frozen=True, slots=True)
class Tree:
    """An explanation: the first line is what is explained, further ones are indented below what they explain."""

    text: str

    @property
    def printable_text(self) -> str:
        """For people."""
        return printable_lines(self.text)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Which devices hold which part of an array."""

    sharding: HloSharding
    dims: tuple[int, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that was drawn already; a terminal shows `text` in its place."""

    svg: str
    text: str = ""
    title: str = "Picture"
    """What it shows."""
    bars: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of a timeline, which a page draws itself, at any zoom: `streams.timeline_bars`."""


@dataclass(frozen=True, slots=True)
class Within:
    """A view as part of another one; in a record it stands under its key."""

    key: str
    view: View
    is_shown: bool = True
    in_record: bool = True
    title: str = ""
    """A section's heading; "": the view just goes on."""
    note: str = ""
    """A sentence below the heading."""


Part = Facts | Table | Text | Lines | Tree | Drawing | Picture | Within


@dataclass(frozen=True, slots=True)
class View(InNotebooks):
    """What there is to say of a value, part by part."""

    parts: tuple[Part, ...]
    schema: str = field(default="", kw_only=True)
    """Name of the record's form; keys are only added within one version."""
