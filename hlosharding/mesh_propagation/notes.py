"""What is said about each value: as the result of its op, and as an operand of each user.

Floor: mesh_propagation.  `required` notes are orders, all others hints; who said it is kept for the reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlosharding.mesh_propagation.loop_program import LoopProgram, LoopValue, Place
from hlosharding.notations import AxisSharding

OUTPUT = "output"
"""The user of what the program returns."""
USER = "the user"


@dataclass(frozen=True, slots=True)
class AxisAnnotation:
    """A sharding for a value: as its op's result, or, with `annotate_for_users`, as its users see it.

    `users` are instruction names, or "output"; () stands for all users.  `operand` picks one operand of the user.
    `required=False` makes it a hint.

    >>> print(AxisAnnotation("y", "P(a, None)", annotate_for_users=True, users=("output",)))
    %y as operand of output: P(a, None) (required by the user)
    """

    value: str
    sharding: AxisSharding | str
    required: bool = True
    annotate_for_users: bool = False
    users: tuple[str, ...] = ()
    operand: int | None = None
    by: str = USER
    """The user, or the op whose option completed it."""

    def __str__(self) -> str:
        seen = "" if not self.annotate_for_users else f" as operand of {', '.join(self.users) or 'every user'}"
        return f"%{self.value}{seen}: {self.sharding} ({'required' if self.required else 'hint'} by {self.by})"


@dataclass(frozen=True, slots=True)
class Note:
    """One entry: the sharding, whether it is an order, and who said so."""

    sharding: AxisSharding
    required: bool
    by: str


@dataclass
class Notes:
    """All entries; propagation adds to them and replaces hints."""

    program: LoopProgram
    results: dict[LoopValue, Note] = field(default_factory=dict)
    uses: dict[Place, Note] = field(default_factory=dict)

    def places(self, value: LoopValue) -> Sequence[Place]:
        """Where a value is used, in program order; the output last."""
        return self.program.users.get(value, ())

    def wish(self, value: LoopValue) -> tuple[Note, str] | None:
        """What users would like the value to be, and which: the first order, else the first hint that splits."""
        found = [(self.uses[p], _user(p)) for p in self.places(value) if p in self.uses]
        ranked = sorted(found, key=lambda entry: (not entry[0].required, not entry[0].sharding.axes))
        return ranked[0] if ranked else None

    def annotations(self) -> tuple[AxisAnnotation, ...]:
        """Everything that is said, in program order: of each op its operands, then its results."""
        made = {value for op in self.program.ops for value in op.results}
        entry = [value for value in self.results if value not in made]
        found = [self._result(value) for value in entry]
        for op in self.program.ops:
            found += [self._use((op, n), value) for n, value in enumerate(op.operands) if (op, n) in self.uses]
            found += [self._result(value) for value in op.results if value in self.results]
        outputs = enumerate(self.program.outputs)
        # A carried value is the result of several copies, into the loop and round it, and is said once.
        return tuple(dict.fromkeys(found + [self._use((None, n), v) for n, v in outputs if (None, n) in self.uses]))

    def _result(self, value: LoopValue) -> AxisAnnotation:
        note = self.results[value]
        return AxisAnnotation(value.name, note.sharding, note.required, by=note.by)

    def _use(self, place: Place, value: LoopValue) -> AxisAnnotation:
        note = self.uses[place]
        return AxisAnnotation(value.name, note.sharding, note.required, True, (_user(place),), place[1], note.by)


def _user(place: Place) -> str:
    return OUTPUT if place[0] is None else place[0].name
