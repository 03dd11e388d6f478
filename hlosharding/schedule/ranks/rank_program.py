"""What one device of a schedule does: the program that users hold.

Floor: schedule.  Glue only: `projection` makes it of a schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.schedule.ranks.alone import RankRun, run_alone
from hlosharding.schedule.ranks.steps import BoundaryTile, RankStep
from hlosharding.schedule.steps import names_text

_NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class RankProgram:
    """The steps in which one device takes part, in order: calls are inlined, shapes are those of its tiles.

    >>> from hlosharding.schedule import parse_schedule
    >>> schedule = parse_schedule('''
    ... func @main(%x: f32[8,4] on {0,1} as {devices=[2,1]<=[2]}) {
    ...   %a, %b = split(%x) dim=0 parts=2 axis=micro
    ...   %y = send(%b) to={2,3}
    ...   free %b
    ...   %z = send(%y) to={0,1}
    ...   %c = concat(%a, %z) dim=0
    ...   return %c
    ... }''')
    >>> print(schedule.rank(1))
    rank 1(%x: f32[4,4]) {
      %a, %b = split(%x) dim=0 parts=2 axis=micro : f32[2,4]; f32[2,4]
      send(%b) to=3 as=%y
      free %b
      %z = receive() from=3 : f32[2,4]
      %c = concat(%a, %z) dim=0 : f32[4,4]
      return %c
    }
    """

    device: int
    parameters: tuple[BoundaryTile, ...]
    steps: tuple[RankStep, ...]
    results: tuple[BoundaryTile, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """Ranks with which it exchanges or shares anything, in rising order."""
        found = {device for step in self.steps for device in step.peers}
        found.update(device for tile in (*self.parameters, *self.results) for device in tile.type.devices)
        return tuple(sorted(found - {self.device}))

    def run_alone(
        self, arrays: Sequence[Any] | None = None, *, received: Mapping[str, Any] = _NONE, device: Any | None = None
    ) -> RankRun:
        """Run it on one device (the first that JAX has) without the others: times, and results of the right shapes.

        `arrays`: its own tiles of the parameters, zeros if left out; `received`: tiles by the name of the receive,
        zeros for the rest.  Collectives become local ops of the same shape and about the same memory traffic, so the
        results are not those of the schedule.
        """
        return run_alone(self.parameters, self.steps, self.results, arrays, received, device)

    def __str__(self) -> str:
        parameters = ", ".join(f"%{tile.name}: {tile.shape}" for tile in self.parameters)
        steps = "".join(f"  {step}\n" for step in self.steps)
        results = f"  return {names_text([tile.name for tile in self.results])}".rstrip()
        return f"rank {self.device}({parameters}) {{\n{steps}{results}\n}}"
