"""A pipeline: what each stage does with one microbatch, and the schedule of all microbatches.

Floor: schedule.  Where the pieces come from (a graph that was cut, functions that a user wrote) is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from hlosharding.collector import collector_waits
from hlosharding.cost import WholeStep
from hlosharding.errors import ScheduleError
from hlosharding.schedule.builder import Ref, ScheduleBuilder
from hlosharding.schedule.interface import Interface
from hlosharding.schedule.op import Op
from hlosharding.schedule.pipelines.merging import Slot, run_ideally
from hlosharding.schedule.pipelines.orders import SPLIT_BACKWARD, Action, PassKind, device_orders, order_and_chunks
from hlosharding.schedule.schedule import Schedule
from hlosharding.schedule.value_type import ValueType


@dataclass(frozen=True, slots=True)
class Piece:
    """One pass of one stage: an op with the names of the values that it reads and makes.

    A name stands for one value a microbatch, or for a parameter that all microbatches share.  What sums over the batch
    (the op's `sums`) is added up over the microbatches.
    """

    kind: PassKind
    stage: int
    op: Op
    reads: tuple[str, ...]
    makes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Closing:
    """What runs behind the last pass, once: a parameter's update; or ahead of all passes."""

    op: Op
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True)
class Pipeline:
    """Pieces on submeshes.

    >>> from hlosharding.ir import Shape
    >>> from hlosharding.schedule import UserOp
    >>> double = UserOp("double", lambda x: x, lambda x: 2 * x, seconds=1.0)
    >>> batch = ValueType(Shape.array("f32", (4,)), (0,))
    >>> pieces = [Piece("forward", n, double, (f"x{n}",), (f"x{n + 1}",)) for n in range(2)]
    >>> pipeline = Pipeline(((0,), (1,)), pieces, {"x0": batch}, batch={"x0": 0}, results=[("x2", 0)])
    >>> pipeline.schedule("forward", microbatches=2).run_reference([1.0, 2.0, 3.0, 4.0])
    [array([ 4.,  8., 12., 16.], dtype=float32)]
    """

    devices: Sequence[tuple[int, ...]]
    """Of each stage's submesh; stages s and s + p, ... share one."""
    pieces: Sequence[Piece]
    inputs: Mapping[str, ValueType]
    """What the whole takes, in order."""
    batch: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of the inputs that are cut into microbatches, the dim; all microbatches read the others."""
    openings: Sequence[Closing] = ()
    """What runs first, in order, each for all microbatches: sums that the passes need."""
    closings: Sequence[Closing] = ()
    results: Sequence[tuple[str, int]] = ()
    """What the whole gives; of values one a microbatch, the dim along which they are joined."""
    number: str = ""
    """By this name pieces read the number of the microbatch, a u32[]."""
    interface: Interface | None = None
    """How inputs and results are parts of the caller's arrays, where they are not these."""
    stages: Mapping[str, int] = field(default_factory=dict[str, int])
    """As of the schedule."""
    whole: WholeStep | None = None
    """Likewise."""

    @cached_property
    def num_devices(self) -> int:
        """p: submeshes; each has as many stages."""
        return len(dict.fromkeys(self.devices))

    @cached_property
    def num_chunks(self) -> int:
        """v: stages of each submesh.  Raises ScheduleError where the stages do not go round."""
        chunks, rest = divmod(len(self.devices), self.num_devices)
        if rest or list(self.devices) != list(self.devices[: self.num_devices]) * chunks:
            raise ScheduleError("the stages do not go round the submeshes", remedy="stage s stands on submesh s mod p")
        return chunks

    @property
    def usual_order(self) -> str:
        """ "1f1b" where there is a backward pass, else "forward"."""
        return "1f1b" if any(piece.kind == "backward" for piece in self.pieces) else "forward"

    @property
    def all_steps(self) -> Sequence[Piece | Closing]:
        """Whatever runs, in an order in which it can."""
        return (*self.openings, *self.pieces, *self.closings)

    @cached_property
    def outline(self) -> Hashable:
        """All but programs, sizes and shardings: the same of pipelines whose schedules have the same steps."""
        inputs = tuple((name, kind.devices) for name, kind in self.inputs.items())
        passes = tuple((piece.kind, piece.stage) for piece in self.pieces)
        once = len(self.openings), tuple(step.devices for step in (*self.openings, *self.closings))
        # Which op a step has does not count, but which steps have the same one: `StepRecorder` finds their kinds by it.
        numbers: dict[Op, int] = {}
        steps = tuple(
            (step.reads, step.makes, tuple(step.op.sums), numbers.setdefault(step.op, len(numbers)))
            for step in self.all_steps
        )
        batch, results = tuple(self.batch.items()), tuple(self.results)
        return inputs, batch, tuple(self.devices), passes, once, steps, results, self.number

    @cached_property
    def makers(self) -> Mapping[str, Piece]:
        """Of each value the piece that makes it."""
        found: dict[str, Piece] = {}
        for piece in self.pieces:
            for name in piece.makes:
                if name in found or name in self.inputs:
                    raise ScheduleError(f"two pieces make {name!r}", remedy="name one otherwise")
                found[name] = piece
        return found

    @cached_property
    def by_pass(self) -> Mapping[tuple[PassKind, int], Sequence[Piece]]:
        """The pieces of each pass of each stage, in the order in which they are given."""
        found: dict[tuple[PassKind, int], list[Piece]] = defaultdict(list)
        for piece in self.pieces:
            found[piece.kind, piece.stage].append(piece)
        return found

    @collector_waits
    def schedule(self, name: str, microbatches: int, *, seconds: Mapping[PassKind, float] | None = None) -> Schedule:
        """The schedule of that many microbatches.

        `name`: "forward", "gpipe", "1f1b" (interleaved where devices have several stages), "zb-h1", "breadth-first";
        with the number of stages a device, if it is said, as "1f1b-x2"; "": the usual order.
        `seconds`: what a pass of each kind takes, roughly: it decides where transfers stand in the list, not what runs
        first.  Raises ScheduleError where the pipeline has not what the schedule needs.
        """
        builder = ScheduleBuilder()
        made = builder.finish(*self.write(builder, name, microbatches, seconds=seconds))
        return replace(made, interface=self.interface, stages=self.stages, whole=self.whole)

    def write(
        self, builder: ScheduleBuilder, name: str, microbatches: int, *, seconds: Mapping[PassKind, float] | None = None
    ) -> list[Ref]:
        """Say the schedule's steps to a builder; its results."""
        order, chunks = order_and_chunks(name or self.usual_order)
        if chunks not in (1, self.num_chunks):
            has = f"{name} of a pipeline with {self.num_chunks} stages a device"
            raise ScheduleError(has, remedy=f"take {order}, or as many stages a device")
        if order in SPLIT_BACKWARD and not any(piece.kind == "weights" for piece in self.pieces):
            raise ScheduleError(f"{order} needs passes of the gradients of weights", remedy="split the backward pieces")
        actions = device_orders(order, self.num_devices, microbatches, self.num_chunks)
        left_out = self._kinds_given_back() - {action.kind for each in actions for action in each}
        if left_out:
            remedy = f"take {'zb-h1' if 'weights' in left_out else self.usual_order}"
            raise ScheduleError(f"{order} has no {min(left_out)} passes, and results come of them", remedy=remedy)
        slots = run_ideally(actions, self._waits, lambda a: (seconds or {}).get(a.kind, 1.0))
        return _ScheduleWriter(self, microbatches, builder).write(slots)

    def _kinds_given_back(self) -> set[PassKind]:
        """Of the passes that make what the whole gives, or what runs behind the last pass reads."""
        read = [*(name for closing in self.closings for name in closing.reads), *(name for name, _ in self.results)]
        return {self.makers[name].kind for name in read if name in self.makers}

    def _waits(self, action: Action) -> list[Action]:
        """What must be done before, of the same microbatch."""
        return [
            Action(kind, stage, action.microbatch) for kind, stage in self._needs.get((action.kind, action.stage), ())
        ]

    @cached_property
    def _needs(self) -> Mapping[tuple[PassKind, int], Sequence[tuple[PassKind, int]]]:
        found: dict[tuple[PassKind, int], list[tuple[PassKind, int]]] = {}
        for key, pieces in self.by_pass.items():
            makers = [self.makers[name] for piece in pieces for name in piece.reads if name in self.makers]
            passes: dict[tuple[PassKind, int], None] = {(maker.kind, maker.stage): None for maker in makers}
            found[key] = [other for other in passes if other != key]
        return found


class _ScheduleWriter:
    """Writes the steps: passes when they start, transfers when what they move is made."""

    def __init__(self, pipeline: Pipeline, microbatches: int, builder: ScheduleBuilder) -> None:
        self.pipeline, self.count, self.builder = pipeline, microbatches, builder
        self.shared: dict[str, Ref] = {}
        self.each: dict[tuple[str, int], Ref] = {}
        self.sums: dict[str, Ref] = {}
        self.copies: dict[tuple[str, tuple[int, ...]], Ref] = {}
        """Of a value, by its name in the schedule, those on other devices."""
        self.number = cache(lambda k, devices: builder.number(k, self.count, devices))
        """Of a microbatch, made once where it is read."""

    def write(self, slots: Mapping[Action, Slot]) -> list[Ref]:
        """The steps; the results."""
        self._enter()
        for opening in self.pipeline.openings:
            self._open(opening)
        for _, is_pass, action in sorted(_events(slots), key=lambda e: e[:2]):
            for piece in self.pipeline.by_pass.get((action.kind, action.stage), ()):
                self._run(piece, action.microbatch) if is_pass else self._send_on(piece, action.microbatch)
        for closing in self.pipeline.closings:
            operands = [self._send_once(self._join_whole(name), closing.devices) for name in closing.reads]
            made = self.builder.run(closing.op, *operands, names=closing.makes)
            self.shared.update(zip(closing.makes, made, strict=True))
        return [self._join_whole(name, dim) for name, dim in self.pipeline.results]

    def _enter(self) -> None:
        inputs = self.pipeline.inputs.items()
        given = {name: self.builder.parameter(name, t.shape, t.devices, t.sharding) for name, t in inputs}
        for name, value in given.items():
            dim = self.pipeline.batch.get(name)
            if dim is None:
                self.shared[name] = value
                continue
            for k, piece in enumerate(self.builder.split(value, self.count, dim=dim)):
                self.each[name, k] = piece

    def _open(self, opening: Closing) -> None:
        for k in range(self.count):
            self._apply(opening, k, opening.devices)
        for name in opening.makes:
            self.shared[name] = self._join_whole(name)

    def _run(self, piece: Piece, k: int) -> None:
        self._send_examples(k)
        self._apply(piece, k, self.pipeline.devices[piece.stage])

    def _apply(self, piece: Piece | Closing, k: int, devices: tuple[int, ...]) -> None:
        operands = [self._find_operand(name, k, devices) for name in piece.reads]
        made = self.builder.run(piece.op, *operands, names=[f"{name}_{k}" for name in piece.makes])
        for number, (name, value) in enumerate(zip(piece.makes, made, strict=True)):
            if self.count > 1 and number in piece.op.sums:
                # Added at once, and in place: so a sum and one term are held, not a term of each microbatch.
                self.sums[name] = self.builder.add(self.sums[name], value) if name in self.sums else value
            else:
                self.each[name, k] = value

    def _find_operand(self, name: str, k: int, devices: tuple[int, ...]) -> Ref:
        if name == self.pipeline.number:
            return self.number(k, devices)
        return self._send_once(self._find_value(name, k), devices)

    def _find_value(self, name: str, k: int) -> Ref:
        found = self.shared.get(name) or self.each.get((name, k))
        if found is None:
            raise ScheduleError(f"nothing makes {name!r} before it is read")
        return found

    def _send_once(self, value: Ref, devices: tuple[int, ...]) -> Ref:
        """The value on these devices, sent there once."""
        if value.type.devices == devices:
            return value
        key = value.name, devices
        if key not in self.copies:
            self.copies[key] = self.builder.send(value, devices)
        return self.copies[key]

    def _send_examples(self, k: int) -> None:
        """What other stages read of the batch goes there before a microbatch's first pass.  Transfers go in the order
        of the list: labels sent only when the last stage reads them would wait for later passes of the first one.
        """
        for name in self.pipeline.batch:
            for devices in self._readers.get(name, ()):
                self._send_once(self._find_value(name, k), devices)

    def _send_on(self, piece: Piece, k: int) -> None:
        """What other stages read goes there as soon as it is made."""
        for name in piece.makes:
            for devices in self._readers.get(name, ()):
                if (name, k) in self.each:
                    self._send_once(self.each[name, k], devices)

    @cached_property
    def _readers(self) -> Mapping[str, Sequence[tuple[int, ...]]]:
        found: dict[str, dict[tuple[int, ...], None]] = defaultdict(dict)
        for piece in self.pipeline.pieces:
            for name in piece.reads:
                found[name][self.pipeline.devices[piece.stage]] = None
        return {name: tuple(devices) for name, devices in found.items()}

    def _join_whole(self, name: str, dim: int = 0) -> Ref:
        """A value of the whole step: a parameter, a sum over all microbatches, or the pieces of all joined."""
        found = self.shared.get(name) or self.sums.get(name)
        if found is not None:
            return found
        pieces = [self._find_value(name, k) for k in range(self.count)]
        self.shared[name] = self.builder.concat(*pieces, dim=dim) if self.count > 1 else pieces[0]
        return self.shared[name]


def _events(slots: Mapping[Action, Slot]) -> Iterator[tuple[float, bool, Action]]:
    """(moment, whether a pass starts then or its transfers, which); at one moment the transfers come first."""
    for action, slot in slots.items():
        yield slot.start, True, action
        yield slot.end, False, action
