"""One table class for everything that is looked up by name, and it refuses doubles.

Floor: ground.  Standard library only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import RLock
from typing import Generic, TypeVar

from hlosharding.errors import HloShardingError

K = TypeVar("K")
V = TypeVar("V")


class Registry(Generic[K, V]):
    """A mapping that is filled once: a second entry for a key is an error, never a silent override.

    `plugins`: rows of others, a mapping each, as "module:name", since the owner of the table imports none of them.
    They are entered when it is first asked, in this order, whoever was imported before.

    >>> table = Registry[str, int]("sizes")
    >>> table.add("a", 1)
    >>> table["a"], table.get("b"), "a" in table
    (1, None, True)
    >>> table.add("a", 2)
    Traceback (most recent call last):
        ...
    hlosharding.errors.HloShardingError: sizes already has an entry for 'a'; remove one of the two
    """

    def __init__(self, name: str, *, plugins: Sequence[str] = ()) -> None:
        self.name = name
        self._entries: dict[K, V] = {}
        self._plugins = [*plugins]
        self._filling, self._is_filled = RLock(), not plugins

    def add(self, key: K, value: V) -> None:
        """Enter `value` under `key`; raises if the key is taken."""
        if key in self._entries:
            raise HloShardingError(f"{self.name} already has an entry for {key!r}", remedy="remove one of the two")
        self._entries[key] = value

    def register(self, *keys: K) -> Callable[[V], V]:
        """Decorator that enters one value under several keys."""

        def enter(value: V) -> V:
            for key in keys:
                self.add(key, value)
            return value

        return enter

    def get(self, key: K) -> V | None:
        """The entry of `key`, or None."""
        return self._filled().get(key)

    def values(self) -> Iterable[V]:
        """The entries, in the order in which they were made."""
        return self._filled().values()

    def __getitem__(self, key: K) -> V:
        if key not in self._filled():
            raise HloShardingError(f"{self.name} has no entry for {key!r}")
        return self._entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self._filled()

    def __iter__(self) -> Iterator[K]:
        return iter(self._filled())

    def __len__(self) -> int:
        return len(self._filled())

    def fill(self) -> None:
        """Enter the plug-ins' rows now: what is added later comes behind them."""
        if not self._is_filled:
            with self._filling:  # another thread waits for all rows; a plug-in that asks while it is imported does not
                while self._plugins:
                    module, name = self._plugins.pop(0).split(":")
                    for key, value in getattr(importlib.import_module(module), name).items():
                        self.add(key, value)
                self._is_filled = True

    def _filled(self) -> dict[K, V]:
        self.fill()
        return self._entries
