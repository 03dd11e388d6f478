"""Arguments that are changed one at a time, the largest first, as long as that helps.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hlosharding.ir import Instruction

_LEAST_GAIN = 1e-6
"""Share of a step's time that a change must save: above what sums of seconds lose in rounding, so that no two shardings
of one price are exchanged for ever, and below what anybody would call a gain."""
Promise = tuple[bool, float]
"""Of two the lesser is the better one."""


def promise(*, fits: bool, seconds: float, peak_bytes: float) -> Promise:
    """What fits, then what is faster; of what does not fit the smaller.

    >>> fast = promise(fits=True, seconds=1.0, peak_bytes=9.0)
    >>> fast < promise(fits=True, seconds=2.0, peak_bytes=1.0) < promise(fits=False, seconds=0.1, peak_bytes=10.0)
    True
    """
    return (False, seconds) if fits else (True, peak_bytes)


def is_better(one: Promise, other: Promise) -> bool:
    """By more than rounding.

    >>> is_better((False, 1.0), (False, 1.0 + 1e-9)), is_better((False, 2.0), (True, 1.0))
    (False, True)
    """
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1] * (1 - _LEAST_GAIN))


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
