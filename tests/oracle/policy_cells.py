"""Which cells of the coverage table GSPMD's policy can fill at all: opcode x direction x level x kind of sharding.

The statement stands here once, read off XLA's ShardingPropagation and not off our propagation: `differential` counts
only changes that live XLA itself logged, and reports a cell that is filled though it is impossible here, or possible
and empty.  Its modules aim at possible cells in turn, and now and then at an impossible one.

Whatever passes at one level passes later too, up to level 3: `random_levels` brings it late.  Not so with an outfeed,
which has what is written on it and no user: it gives that to its operand at its first level, and at level 2 to a
broadcast, which takes nothing earlier.  So does one device, as an element of a tuple, with an op that may not receive
tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hlosharding.ir import ALL_OPCODES, ELEMENTWISE
from tests.oracle.coverage import Cell

_MOVE = "RTPSUN"
"""What passes from array to array; M, one device, travels only as an element of a tuple."""
_TUPLE = _MOVE + "M"

Row = tuple[str, str, str]
"""Opcodes, levels, kinds."""

# An opcode may stand in several rows; what stands in none is impossible.
FORWARD: tuple[Row, ...] = (
    (" ".join(sorted(ELEMENTWISE - {"copy"})) + " map transpose reshape", "0123", _MOVE),
    ("copy tuple get-tuple-element opt-barrier while", "0123", _TUPLE),
    # Of one op after another; no operand speaks for it at level 0.
    ("fusion", "123", "RTPSU"),
    ("fusion", "0123", "N"),
    ("dynamic-slice", "0123", "RTPSU"),
    ("dynamic-slice", "123", "N"),
    ("dynamic-update-slice", "0123", _MOVE),
    # At level 0 only where every operand is a reshape of a parameter, in more than one tile.
    ("concatenate", "0123", "TPSU"),
    ("concatenate", "123", "RN"),
    # At level 0 only `Sharding` calls, which are replicated from the start.
    ("custom-call", "0123", "TPSUN"),
    ("custom-call", "123", "RM"),
    # The operands are scalars: there are no tiles to pass; no operand speaks for it at level 0.
    ("rng", "123", "RSU"),
    ("rng", "0123", "N"),
    ("pad slice reverse sort reduce reduce-window select-and-scatter dot convolution gather scatter", "123", _MOVE),
    ("all-reduce collective-permute reduce-scatter", "123", _MOVE),
    # Of a called computation: from the caller's operand.
    ("parameter", "123", _TUPLE),
    # Manual passes one level before tilings do, and replicated is not passed.
    ("broadcast", "23", "N"),
    ("broadcast", "3", "TPSU"),
    # These may not receive a tiling: they become replicated or manual with an operand.
    ("call", "0123", "RN"),
    (
        "add-dependency all-gather all-to-all batch-norm-inference bitcast cholesky domain dynamic-reshape fft",
        "123",
        "RN",
    ),
    ("get-dimension-size ragged-all-to-all ragged-dot set-dimension-size triangular-solve", "123", "RN"),
    # A token is no array: not manual.
    ("after-all", "123", "R"),
    # A side effect forbids replicated, and a conditional asks nobody; manual is not held up.
    ("collective-broadcast all-reduce-start all-reduce-done conditional rng-bit-generator", "123", "N"),
    # From a start that is wholly manual: written so, or for an element of it that is manual.
    ("all-gather-done collective-permute-done copy-done async-done", "123", "N"),
    ("copy-done", "1", "R"),
)

BACKWARD: tuple[Row, ...] = (
    (" ".join(sorted(ELEMENTWISE - {"copy"})) + " map fusion transpose reshape", "0123", _MOVE),
    ("copy tuple get-tuple-element opt-barrier while call", "0123", _TUPLE),
    ("custom-call", "0123", _TUPLE),
    ("rng", "0123", "RSUN"),
    # Its operand becomes replicated whatever it has itself.
    ("rng-bit-generator", "0123", "RN"),
    ("concatenate dynamic-slice dynamic-update-slice", "123", "RTPSU"),
    ("pad slice reverse sort reduce reduce-window select-and-scatter dot convolution gather scatter", "123", "RTPSU"),
    # Of a scan that is written on; for one that is not see `known_exceptions`.
    ("scan", "12", "RTPSU"),
    # Where the operand has the result's shape.
    ("all-reduce collective-permute reduce-scatter", "123", "RTPSU"),
    (
        "all-gather all-to-all collective-broadcast all-reduce-start cholesky fft bitcast domain add-dependency",
        "123",
        "TPSU",
    ),
    ("ragged-all-to-all triangular-solve ragged-dot batch-norm-inference", "123", "RTPSU"),
    ("dynamic-reshape set-dimension-size", "123", "RTPSU"),
    # With one operand only, replicated is what is written on it, or what the operand has already.
    (
        "all-gather all-to-all collective-broadcast all-reduce-start cholesky fft bitcast domain add-dependency",
        "12",
        "R",
    ),
    ("conditional", "123", "RTPSUM"),
    ("domain add-dependency fusion outfeed", "1", "M"),
    ("outfeed", "12", "RTPSU"),
    ("broadcast", "23", "RTPSU"),
    # A token's user: a token has no tiles.
    ("after-all", "123", "R"),
    ("after-all", "1", "SUN"),
    # Any manual user makes an array manual, at any level.
    (
        "concatenate dynamic-slice dynamic-update-slice pad slice reverse sort reduce reduce-window select-and-scatter",
        "0123",
        "N",
    ),
    ("dot convolution gather scatter all-reduce collective-permute reduce-scatter all-gather all-to-all", "0123", "N"),
    ("collective-broadcast ragged-all-to-all all-reduce-start cholesky fft triangular-solve ragged-dot", "0123", "N"),
    ("batch-norm-inference bitcast dynamic-reshape set-dimension-size conditional domain add-dependency", "0123", "N"),
    ("broadcast topk batch-norm-training batch-norm-grad get-dimension-size scan all-reduce-done", "0123", "N"),
    ("send copy-start async-start all-gather-start collective-permute-start", "0123", "N"),
    ("async-update", "123", "N"),
    ("outfeed", "012", "N"),
)


def possible_cells() -> frozenset[Cell]:
    """All cells that some module can fill."""
    return frozenset((*_cells("F", FORWARD), *_cells("B", BACKWARD)))


def _cells(direction: str, rows: tuple[Row, ...]) -> Iterator[Cell]:
    for words, levels, kinds in rows:
        for opcode in words.split():
            if opcode not in ALL_OPCODES:
                raise ValueError(f"{opcode} is no opcode")
            for level, kind in product(map(int, levels), kinds):
                yield opcode, direction, level, kind
