"""A plan: how many ways a step is split by data, by tensors and into stages, and into how many microbatches.

Floor: search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any, NamedTuple

from hlosharding.errors import ScheduleError, is_count, marked
from hlosharding.schedule import ORDERS as SCHEDULES
from hlosharding.schedule import StageLayout, order_and_chunks
from hlosharding.sharding import check_devices

REPLICAS = "replicas"
"""The axis of those data ways that hold copies of what is split over the others."""
CONTEXT = "context"
"""The axis of those data ways that have parts of a sequence."""
EXPERTS = "experts"
"""The axis of those data ways that have other experts each."""
AXES = (REPLICAS, "data", CONTEXT, EXPERTS, "tensor")
"""Of a stage's mesh, the outermost first."""
SEQUENCE = "sequence"
"""The word for sequence parallelism."""
EVEN = "even"
"""The word for as many layers in each stage."""
RECOMPUTE = "recompute"
"""The word for backward loops that make anew what forward ones could stack."""
LAYERS = "layers"
"""The word for how many each stage has."""
# Nine digits are enough, and plans come in files, too: of more than 4,300 int() raises an error that is not ours.
_WAYS = re.compile("/".join([r"([1-9][0-9]{0,8})"] * 4))
_PART = re.compile(rf"({REPLICAS}|{CONTEXT}|{EXPERTS})=([1-9][0-9]{{0,8}})")
_SHARES = re.compile(rf"{LAYERS}=([1-9][0-9]{{0,8}}(?:\+[1-9][0-9]{{0,8}})*)")
_STRATEGY = re.compile(r"[^\s,=]+")
_SPELLING = (
    "how many ways of data, tensors, stages and microbatches, as 8/2/2/16; then, each once, a schedule"
    f" ({', '.join(SCHEDULES)}; with chunks 1f1b-x2), an order, as PTD, a strategy, {REPLICAS}=N, {CONTEXT}=N,"
    f" {EXPERTS}=N, {SEQUENCE}, {EVEN}, {RECOMPUTE}, {LAYERS}=N+N"
)


@dataclass(frozen=True, slots=True, order=True)
class Plan:
    """Data, tensor and pipeline parallelism together: each stage's devices form a mesh [data, tensor].

    Raises ScheduleError for what is no count, schedule, order or word, and for parts that do not divide the data ways.

    >>> print(Plan(4, 2, 2, 8), Plan(1, 8).num_devices, Plan(2, 2, order="TD"))
    4/2/2/8 8 2/2/1/1 TD
    """

    # Not annotated, so that it is a constant of the class and no field, which files of prices would hold.
    ORDERS = tuple(map("".join, permutations("PDT")))
    """Ways to number the devices: of stages (P), data (D) and tensors (T) the first letter is the outermost way."""
    data: int = 1
    tensor: int = 1
    stages: int = 1
    microbatches: int = 1
    schedule: str = ""
    """As of `pipelined`, as "1f1b-x2" with two chunks of the layers a device; "": 1F1B of a training step."""
    order: str = ""
    """The ways on the machine's devices, the outermost first, as "TPD"; those of one way may be left out; "": PDT."""
    strategy: str = ""
    """Which dims are split: one of `STRATEGIES`, or a name that the user gave one; "": megatron, if no other has it."""
    replicas: int = 1
    """Of the data ways, how many hold copies of what the strategy splits over data (HSDP)."""
    context: int = 1
    """Of the data ways, how many have parts of each sequence, the second dim of the batch, not other examples."""
    experts: int = 1
    """Of the data ways, over how many the experts are split: what these read goes there, and back."""
    sequence: bool = False
    """Sequence parallelism: is a sequence split over the tensor ways where no weight's split is?"""
    even: bool = False
    """Have the stages as many layers each, as Megatron cuts them?  Else they take equal time, an embedding and a
    vocabulary's product included."""
    layers: tuple[int, ...] = ()
    """Of parts of the step that take equal time (of layers, if `even`) how many each stage has; (): one.  A device's
    chunks are stages of their own."""
    recompute: bool = False
    """Is of each layer in a scan only kept what it was given, and the rest made again backwards (`jax.checkpoint`)?"""

    def __post_init__(self) -> None:
        for what, remedy in self._faults:
            raise ScheduleError(what, where=f"plan {self}", remedy=remedy)
        _ = self.layout  # has a say on layers

    @property
    def _faults(self) -> Iterator[tuple[str, str]]:
        """What is wrong, and what to do."""
        counts = {"data": self.data, "tensor": self.tensor, "stages": self.stages, "microbatches": self.microbatches}
        for name, count in {**counts, **self._parts}.items():
            if not is_count(count):
                yield f"{name}={count}", "count from 1"
        if self.data % math.prod(self._parts.values()):
            parts = " x ".join(f"{size} {axis}" for axis, size in self._parts.items() if size != 1)
            yield f"{self.data} data ways are not {parts}", f"take numbers whose product divides {self.data}"
        if self.schedule and not _is_schedule(self.schedule):
            yield f"no schedule {self.schedule!r}", f"there are {', '.join(SCHEDULES)}"
        needed = {way for way, size in self._sizes.items() if size > 1}
        if self.order and not (len(set(self.order)) == len(self.order) and needed <= set(self.order) <= set("PDT")):
            ways = f"{self.data}/{self.tensor}/{self.stages}"
            yield f"{self.order!r} is no order of {ways}", "write P, D and T, each once, as PTD"
        # A strategy called PD, say, would be read back from the plan's text as an order.
        if self.strategy and _field_of(self.strategy) != ("strategy", self.strategy):
            yield f"{self.strategy!r} names no strategy", "take one word that means nothing else, without , and ="

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan whose `str` this is: D/T/P/K, and words behind it in any order.

        Raises ScheduleError, with the position of what cannot stand there.

        >>> Plan.parse("16/2/2/8 zb-h1 fsdp replicas=4") == Plan(16, 2, 2, 8, "zb-h1", strategy="fsdp", replicas=4)
        True
        """
        # Of no text the end is the first word, so that the error has a position.
        first, *words = re.finditer(r"\S+", text) if text.strip() else re.finditer("$", text)
        ways = _WAYS.fullmatch(first[0])
        if ways is None:
            raise ScheduleError("no D/T/P/K", where=marked(text, first.start()), remedy=f"write {_SPELLING}")
        fields: dict[str, Any] = {}
        for word in words:
            name, value = _field_of(word[0]) or ("", None)
            if not name or name in fields:
                what = f"a second {name}" if name else "no word of a plan"
                raise ScheduleError(what, where=marked(text, word.start()), remedy=f"write {_SPELLING}")
            fields[name] = value
        data, tensor, stages, microbatches = map(int, ways.groups())
        return cls(data, tensor, stages, microbatches, **fields)

    def __str__(self) -> str:
        """D/T/P/K, as the DistIR paper writes it, then schedule, order, strategy and the parts of data ways if said."""
        ways = f"{self.data}/{self.tensor}/{self.stages}/{self.microbatches}"
        parts = [f"{name}={size}" for name, size in self._parts.items() if size > 1]
        marks = [word for word in (SEQUENCE, EVEN, RECOMPUTE) if getattr(self, word)]
        layers = f"{LAYERS}={'+'.join(map(str, self.layers))}" if self.layers else ""
        said = self.schedule, self.order, self.strategy, *parts, *marks, layers
        return " ".join(filter(None, (ways, *said)))

    @property
    def ways(self) -> dict[str, int]:
        """The mesh of a stage, its axes by name, the outermost first.

        >>> Plan(8, 2).ways, Plan(8, strategy="fsdp", replicas=2).ways, Plan(8, context=4).ways
        ({'data': 8, 'tensor': 2}, {'replicas': 2, 'data': 4, 'tensor': 1}, {'data': 2, 'context': 4, 'tensor': 1})
        """
        parts = self._parts
        sizes = {"data": self.data // math.prod(parts.values()), **parts, "tensor": self.tensor}
        return {axis: sizes[axis] for axis in AXES if sizes[axis] > 1 or axis not in parts}

    @property
    def _parts(self) -> dict[str, int]:
        return {REPLICAS: self.replicas, CONTEXT: self.context, EXPERTS: self.experts}

    @property
    def batch_ways(self) -> int:
        """Into how many pieces the examples are cut."""
        return self.data // self.context

    @property
    def stage(self) -> Plan:
        """What decides how the arguments lie on the devices of one stage."""
        return replace(self, stages=1, microbatches=1, schedule="", order="", even=False, layers=())

    @property
    def _sizes(self) -> dict[str, int]:
        return {"P": self.stages, "D": self.data, "T": self.tensor}

    @property
    def shortest_order(self) -> str:
        """The order without ways of one device: the same of plans that lie alike.

        >>> Plan(2, 2, order="PTD").shortest_order, Plan(4, order="TDP").shortest_order
        ('TD', '')
        """
        said, usual = ("".join(way for way in order if self._sizes[way] > 1) for order in (self.order, self.ORDERS[0]))
        return "" if said == usual else said

    @property
    def submeshes(self) -> list[tuple[int, ...]]:
        """The devices of each stage, those of one data way together.

        >>> Plan(2, 2, 2).submeshes, Plan(2, 2, 2, order="TDP").submeshes
        ([(0, 1, 2, 3), (4, 5, 6, 7)], [(0, 4, 2, 6), (1, 5, 3, 7)])
        """
        # Ahead of the list: a plan that is nine digits long asks for a billion ids.
        check_devices(self.num_devices)
        strides, inner = dict.fromkeys("PDT", 0), 1
        for way in reversed(self.order or self.ORDERS[0]):
            strides[way], inner = inner, inner * self._sizes[way]
        starts = [stage * strides["P"] for stage in range(self.stages)]
        inside = list(product(range(self.data), range(self.tensor)))
        return [tuple(start + d * strides["D"] + t * strides["T"] for d, t in inside) for start in starts]

    @property
    def layout(self) -> StageLayout:
        """Into what the program is cut."""
        return StageLayout.of(self.stages, self.schedule, self.even, self.layers)

    @property
    def num_devices(self) -> int:
        return self.data * self.tensor * self.stages

    def divides(self, batch_size: int) -> bool:
        """Do all microbatches, and all their tiles, have as many examples?"""
        return batch_size % (self.microbatches * self.batch_ways) == 0


def _field_of(word: str) -> tuple[str, str | int | tuple[int, ...]] | None:
    """Which field of a plan a word says, and what."""
    if shares := _SHARES.fullmatch(word):
        return LAYERS, tuple(map(int, shares[1].split("+")))
    if part := _PART.fullmatch(word):
        return part[1], int(part[2])
    if word in (SEQUENCE, EVEN, RECOMPUTE):
        return word, True
    if _is_schedule(word):
        return "schedule", word
    if set(word) <= set("PDT"):
        return "order", word
    return ("strategy", word) if _STRATEGY.fullmatch(word) else None


def _is_schedule(word: str) -> bool:
    return order_and_chunks(word)[0] in SCHEDULES


class SizedPlan(NamedTuple):
    """A plan for a step of so many examples.

    >>> SizedPlan(Plan(2, 1, 2, 4), 64).examples
    16
    """

    plan: Plan
    batch_size: int

    @property
    def examples(self) -> int:
        """Of a microbatch."""
        return self.batch_size // self.plan.microbatches
