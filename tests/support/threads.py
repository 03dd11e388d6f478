"""Work in several threads that start together and change places often."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def in_threads(work: Callable[[int], T], count: int = 8) -> list[T]:
    """What `work(number)` gives in each of `count` threads; raises what any of them raises."""
    gate, interval = Barrier(count), sys.getswitchinterval()

    def body(number: int) -> T:
        gate.wait()
        return work(number)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(body, range(count)))
    finally:
        sys.setswitchinterval(interval)
