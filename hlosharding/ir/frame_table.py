"""The table of Python stack frames of a module, extended when calls are inlined.

Floor: ir.  A frame is (file location, parent frame); ids count from 1, 0 is none.
"""

from __future__ import annotations

from typing import Any


class FrameTable:
    """Joins stacks of a `StackFrameIndexProto` that is ours to extend; follows XLA's StackFrames."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._parents = [0, *(f.parent_frame_id for f in index.stack_frames)]
        self._locations = [0, *(f.file_location_id for f in index.stack_frames)]
        self._ids = {(f.file_location_id, f.parent_frame_id): n + 1 for n, f in enumerate(index.stack_frames)}
        self._joined: dict[tuple[int, int], int] = {}

    def join(self, outer: int, inner: int) -> int:
        """The stack `inner` as seen from inside the stack `outer` (unchanged if it already stands there)."""
        known = self._joined.get((outer, inner))
        if known is None:
            known = self._joined[outer, inner] = self._join(outer, inner)
        return known

    def _join(self, outer: int, inner: int) -> int:
        chain: list[int] = []
        frame = inner
        while 0 < frame < len(self._parents):
            if frame == outer:
                return inner
            chain.append(frame)
            frame = self._parents[frame]
        current = outer
        for frame in reversed(chain if outer else []):
            current = self._frame(self._locations[frame], current)
        return current if outer else inner

    def _frame(self, location: int, parent: int) -> int:
        found = self._ids.get((location, parent))
        if found is None:
            frame = self._index.stack_frames.add()
            frame.file_location_id, frame.parent_frame_id = location, parent
            self._parents.append(parent)
            self._locations.append(location)
            found = self._ids[location, parent] = len(self._parents) - 1
        return found
