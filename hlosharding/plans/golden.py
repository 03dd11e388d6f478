"""A plan's recorded figures beside it, to which later versions of the program are held.

Floor: plans.  The file is small, has no path and no time in it, and is the same on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from hlosharding.compiler import Partitioned
from hlosharding.cost import preset_text
from hlosharding.errors import PlanError
from hlosharding.plans.replicated import REPLICATED_OVER, replicated_values
from hlosharding.small_files import parsed_toml, read_text
from hlosharding.whole_files import write_whole

VERSION = 1


@dataclass(frozen=True, slots=True)
class Talk:
    """Collectives of one kind over the same axes, at one line."""

    kind: str
    axes: str
    line: str
    times: int
    received_bytes: int

    @property
    def work(self) -> tuple[str, str, int]:
        """What it is wherever it stands: lines move when a program changes."""
        return self.kind, self.axes, self.received_bytes

    @property
    def nbytes(self) -> int:
        """Received in a run."""
        return self.received_bytes

    def __str__(self) -> str:
        over = f" over {self.axes}" if self.axes else ""
        return f"{self.kind}{over} at {self.line or 'no line'}"


@dataclass(frozen=True, slots=True)
class ReplicatedValues:
    """Values that every device holds whole, alike but for their number."""

    value: str
    line: str
    count: int
    nbytes: int
    """Of all of them."""

    @property
    def work(self) -> tuple[str, int]:
        """What it is wherever it stands."""
        return self.value, self.nbytes

    def __str__(self) -> str:
        return f"{self.value} at {self.line}" if self.line else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """The figures of a program under a plan: what one device receives and holds in a run.

    >>> import hlosharding as hs
    >>> text = '''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
    ...   ROOT y = f32[8,4] negate(x), sharding={replicated}
    ... }'''
    >>> golden = Golden.of(hs.partition(hs.load(text), machine=hs.machines.h100(2)))
    >>> print(golden.to_text())
    version = 1
    machine = "h100:2"
    num_partitions = 2
    received_bytes = 64
    peak_memory_bytes = 256
    peak_at = "all-gather"
    replicated_bytes = 0
    replicated_over = 1048576
    collectives = [
        { kind = "all-gather", axes = "", line = "", times = 1, received_bytes = 64 },
    ]
    replicated = []
    <BLANKLINE>
    """

    machine: str
    num_partitions: int
    received_bytes: int
    peak_memory_bytes: int
    peak_at: str
    """The op during which memory peaks, and its line."""
    replicated_bytes: int
    replicated_over: int
    collectives: tuple[Talk, ...]
    replicated: tuple[ReplicatedValues, ...]

    @classmethod
    def of(cls, partitioned: Partitioned, *, replicated_over: int = REPLICATED_OVER) -> Golden:
        """Of a program as it is now."""
        whole = tuple(_wholes(partitioned, replicated_over))
        return cls(
            machine=preset_text(partitioned.machine) or partitioned.machine.name,
            num_partitions=partitioned.num_partitions,
            received_bytes=round(partitioned.comm_bytes_per_device),
            peak_memory_bytes=partitioned.peak_memory_bytes,
            peak_at=_peak_at(partitioned),
            replicated_bytes=sum(each.nbytes for each in whole),
            replicated_over=replicated_over,
            collectives=tuple(_talks(partitioned)),
            replicated=whole,
        )

    @classmethod
    def read(cls, path: str | Path) -> Golden:
        """Of a file.  Raises PlanError for one that is none."""
        said = parsed_toml(str(path), read_text(path, PlanError), PlanError)
        if said.pop("version", None) != VERSION:
            raise PlanError(f"{path} is of another version", remedy="record it anew with --update")
        try:
            rows = _rows(Talk, said.pop("collectives")), _rows(ReplicatedValues, said.pop("replicated"))
            made = cls(**said, collectives=rows[0], replicated=rows[1])
        except (KeyError, TypeError) as error:
            raise PlanError(f"{path} holds no recorded figures: {error}", remedy="record them with --update") from None
        _check_types(made, str(path))
        return made

    def to_text(self) -> str:
        """As the file has it: one line for each figure, collective and value."""
        import tomli_w

        record: dict[str, Any] = {"version": VERSION, **asdict(self)}
        return tomli_w.dumps({key: list(v) if isinstance(v, tuple) else v for key, v in record.items()})

    def write(self, path: str | Path) -> None:
        """Write a file, whole or not at all.  Raises HloShardingError where that cannot be."""
        write_whole(path, self.to_text())


def golden_path(plan: str | Path) -> Path:
    """Where the figures of a plan stand: beside it.

    >>> golden_path("plans/step.toml").as_posix()
    'plans/step.golden.toml'
    """
    return Path(plan).with_suffix(".golden.toml")


def _peak_at(partitioned: Partitioned) -> str:
    inst = partitioned.module.by_name(partitioned.cost.peak_at) if partitioned.cost.peak_at else None
    return " at ".join(filter(None, (inst.opcode, inst.location))) if inst is not None else ""


def _talks(partitioned: Partitioned) -> Iterator[Talk]:
    """The largest first."""
    totals: defaultdict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for one in partitioned.collectives:
        total = totals[one.kind, one.axes, one.location]
        total[0] += one.executions
        total[1] += one.bytes_per_device
    found = [Talk(*key, int(times), round(received)) for key, (times, received) in totals.items()]
    return iter(sorted(found, key=lambda talk: (-talk.received_bytes, talk.kind, talk.axes, talk.line)))


def _wholes(partitioned: Partitioned, over: int) -> Iterator[ReplicatedValues]:
    """The largest first."""
    sizes: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for value in replicated_values(partitioned, over=over):
        sizes[value.name, value.location].append(value.nbytes)
    found = [ReplicatedValues(*key, len(each), sum(each)) for key, each in sizes.items()]
    return iter(sorted(found, key=lambda whole: (-whole.nbytes, whole.value, whole.line)))


# ---- read: a stranger's file

Row = TypeVar("Row", Talk, ReplicatedValues)


def _rows(kind: type[Row], tables: Any) -> tuple[Row, ...]:
    """Raises TypeError."""
    if not isinstance(tables, list):
        raise TypeError("no list")
    return tuple(kind(**cast("dict[str, Any]", table)) for table in cast("list[Any]", tables))


def _check_types(made: Golden, path: str) -> None:
    """Raises PlanError unless every figure is a number and every name a text."""
    for each in cast("Sequence[Any]", (made, *made.collectives, *made.replicated)):
        for field in fields(each):
            # Annotations are texts here; and a truth value, which is an `int` in Python, is no number.
            value, wanted = getattr(each, field.name), {"int": int, "str": str}.get(str(field.type), tuple)
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise PlanError(f"{path}: {field.name} is no {field.type}", remedy="record it anew with --update")
