"""Arguments that are changed one at a time, the largest first, as long as that helps.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hlosharding.ir import Instruction

LEAST_GAIN = 1e-6
"""Share of a step's time that a change must save: above what sums of seconds lose in rounding, so that no two shardings
of one price are exchanged for ever, and below what anybody would call a gain."""


def largest_first(parameters: Iterable[Instruction]) -> list[Instruction]:
    """The order in which arguments have their turns."""
    return sorted(parameters, key=lambda p: (-p.shape.byte_size, p.parameter_number))


def improve_in_turn(
    arguments: Sequence[Instruction], improve: Callable[[Instruction], bool], may_go_on: Callable[[], bool]
) -> bool:
    """Go round until none improves anything; False where it may not go on that long.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = f32[8] parameter(0)  ROOT y = f32[8] negate(x) }''')
    >>> left = [3]
    >>> def improve(argument):
    ...     left[0] -= 1
    ...     return left[0] > 0
    >>> improve_in_turn(module.entry.parameters, improve, lambda: True), left
    (True, [0])
    """
    unchanged, place = 0, 0
    while unchanged < len(arguments):
        if not may_go_on():
            return False
        unchanged = 0 if improve(arguments[place % len(arguments)]) else unchanged + 1
        place += 1
    return True
