"""Time against memory: the plans of a search as a picture.

Floor: report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlosharding.report.figures import as_bytes, as_seconds
from hlosharding.report.svg import LogScale, label, line_down, line_right, svg_image
from hlosharding.search import PricedPlan, SearchResult, pareto

_LEFT, _TOP, _WIDTH, _HEIGHT, _BOTTOM = 90, 40, 640, 400, 60  # pixels: room around the plot, and the plot
_NAME_WIDTH, _NAME_HEIGHT = 90, 13


def pareto_svg(result: SearchResult) -> str:
    """Each plan as a point, those of `pareto` joined, and named where there is room; the others say what they are when
    pointed at.

    Both axes are logarithmic.  What is red, and right of the red line, no device holds.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> module = hs.trace(lambda w, x: jnp.tanh(x @ w))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    >>> found = hs.search(module, batch=["x"], machine=hs.machines.h100(2), microbatches=(1,))
    >>> pareto_svg(found).startswith("<svg ")
    True
    """
    table = [priced for priced in result.table if priced.time_s > 0 and priced.peak_memory_bytes > 0]
    if not table:
        return svg_image(_LEFT + _WIDTH, _TOP, [label(4, 16, result.headline)])
    across = LogScale([priced.peak_memory_bytes for priced in table], _LEFT, _LEFT + _WIDTH)
    up = LogScale([priced.time_s / priced.batch_size for priced in table], _TOP + _HEIGHT, _TOP)
    best = pareto(table)
    parts = [label(4, 16, f"plans for {result.machine.name}: time of an example against memory of a device")]
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    parts += [line_down(across.at(size), _TOP, bottom, as_bytes(size), below=18) for size in across.ticks]
    parts += [line_right(up.at(moment), _LEFT, right, as_seconds(moment)) for moment in up.ticks]
    limit = across.at(result.machine.memory_bytes)
    if _LEFT <= limit <= right:
        parts.append(f'<path d="M{limit:.1f} {_TOP}V{bottom}" stroke="hsl(0,70%,50%)" stroke-width="2"/>')
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(priced, across, up) for priced in best))
    parts.append(f'<polyline points="{steps}" fill="none" stroke="hsl(210,60%,50%)" stroke-dasharray="4"/>')
    parts += [_point(priced, across, up, is_best=priced in best) for priced in table]
    parts += _names(best, across, up)
    return svg_image(right + 120, bottom + _BOTTOM, parts)


def pareto_text(result: SearchResult) -> str:
    """The same in letters: `#` is on the front, `o` is not, `x` fits no device; "" where there are not three plans."""
    table = [priced for priced in result.table if priced.time_s > 0 and priced.peak_memory_bytes > 0]
    if len(table) < _FEWEST:
        return ""
    across = LogScale([priced.peak_memory_bytes for priced in table], 0, _COLUMNS - 1)
    up = LogScale([priced.time_s / priced.batch_size for priced in table], _LINES - 1, 0)
    grid = [[" "] * _COLUMNS for _ in range(_LINES)]
    best = pareto(table)
    # Those on the front last: they are written over others in the same place.
    for priced in sorted(table, key=lambda each: each in best):
        x, y = map(round, _place(priced, across, up))
        grid[y][x] = "x" if not priced.fits else "#" if priced in best else "o"
    ends = [as_bytes(10**each) for each in (across.low, across.high)]
    times = {0: as_seconds(10**up.high), _LINES - 1: as_seconds(10**up.low)}
    lines = [f"{times.get(number, ''):>9} |{''.join(line).rstrip()}" for number, line in enumerate(grid)]
    title = "time of an example against memory of a device, logarithmic: # on the front, o not, x fits no device"
    return "\n".join(
        [title, *lines, f"{'':>9} +{'-' * _COLUMNS}", f"{'':>11}{ends[0]}{ends[1]:>{_COLUMNS - len(ends[0])}}"]
    )


_FEWEST, _LINES, _COLUMNS = 3, 10, 60


def _place(priced: PricedPlan, across: LogScale, up: LogScale) -> tuple[float, float]:
    return across.at(priced.peak_memory_bytes), up.at(priced.time_s / priced.batch_size)


def _point(priced: PricedPlan, across: LogScale, up: LogScale, *, is_best: bool) -> str:
    x, y = _place(priced, across, up)
    colour = "hsl(210,60%,50%)" if priced.fits else "hsl(0,70%,50%)"
    said = f"{priced.plan}: {as_seconds(priced.time_s)}, {as_bytes(priced.peak_memory_bytes)}"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if is_best else 3}" fill="{colour}"><title>{said}</title></circle>'


def _names(best: Iterable[PricedPlan], across: LogScale, up: LogScale) -> Iterator[str]:
    """Of those that do not stand where another name stands already."""
    taken: list[tuple[float, float]] = []
    for priced in best:
        x, y = _place(priced, across, up)
        if all(abs(x - other) > _NAME_WIDTH or abs(y - height) > _NAME_HEIGHT for other, height in taken):
            taken.append((x, y))
            yield label(x + 8, y - 6, str(priced.plan))
