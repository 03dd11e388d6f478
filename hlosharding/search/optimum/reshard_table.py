"""Seconds of all reshards that a program's choices may need: bounds at first, the partitioner's plans where it counts.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hlosharding.ir import Shape
from hlosharding.partitioner import Prices
from hlosharding.reshard import least_of, least_seconds, least_seconds_of_each
from hlosharding.sharding import HloSharding

Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Source = tuple[HloSharding, str | None]
"""How an array lies, and by what partial results combine."""


_LEAST = 1e-12
"""Seconds: nothing that is moved takes less."""


class Reshard(NamedTuple):
    """Of an array, partial results combined on the way."""

    shape: Shape
    source: HloSharding
    target: HloSharding
    reduce_kind: str | None = None


class ReshardTable:
    """What reshards take at least, and exactly those that were planned."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self._numbers: dict[Reshard, int] = {}
        self._unplanned: dict[int, Reshard] = {}
        """By number, those of which seconds are a bound."""
        self._bytes: list[float] = []
        self._seconds: list[float] = []
        self._tables: dict[object, Integers] = {}

    def numbers(self, shape: Shape, sources: Sequence[Source], targets: Sequence[HloSharding]) -> Integers:
        """[source, target]: the numbers of the reshards between them."""
        key = shape, tuple((s.uid, kind) for s, kind in sources), tuple(t.uid for t in targets)
        if key not in self._tables:
            rows = [[self._number(Reshard(shape, s, t, kind)) for t in targets] for s, kind in sources]
            self._tables[key] = np.array(rows, np.int64).reshape(len(sources), len(targets))
        return self._tables[key]

    @property
    def seconds(self) -> Numbers:
        """[number]: at least; of what is planned so much as it takes."""
        return np.array(self._seconds)

    @property
    def least_bytes(self) -> Numbers:
        """[number]: that a device receives, at least."""
        return np.array(self._bytes)

    def share_joined(self, nbytes: Numbers, times: float) -> Numbers:
        """What reshards by which a device receives so many bytes take where XLA's combiner joins them with others to so
        many times their bytes, over what each takes alone: all start once."""
        alone, joined = (least_seconds_of_each(n * nbytes, self.prices.machine) for n in (1.0, times))
        # `where` computes both sides, hence no division by 0.
        return np.where(alone > 0, joined / times / np.maximum(alone, _LEAST), 1.0)

    def plan(self, numbers: Iterable[int]) -> int:
        """Plan those that are not yet; how many these were."""
        missing = self._unplanned.keys() & numbers
        for number in missing:
            self._seconds[number] = self.prices.reshard_seconds(*self._unplanned.pop(number))
        return len(missing)

    def _number(self, reshard: Reshard) -> int:
        number = self._numbers.get(reshard)
        if number is None:
            number = self._numbers[reshard] = len(self._numbers)
            nbytes, seconds = self._least(reshard)
            self._bytes.append(nbytes)
            self._seconds.append(seconds)
            # Nothing moves if they are the same, so the bound is the price.
            if reshard.source is not reshard.target:
                self._unplanned[number] = reshard
        return number

    def _least(self, reshard: Reshard) -> tuple[float, float]:
        """Bytes and seconds."""
        shape, source, target, _ = reshard
        if source is target:
            return 0.0, 0.0
        machine = self.prices.machine
        least = least_of(source, target, shape.dims, machine.num_devices)
        nbytes = least.mean_bytes(shape)
        return nbytes, least_seconds(nbytes, machine, least.reach)
