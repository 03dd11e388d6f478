"""A generated program on given devices: arrays are brought where they must lie, and results get their users' names.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.boundary import BoundaryArray, typed_input
from hlosharding.executor.device_program import DeviceProgram, refuse_described
from hlosharding.executor.laying_out import put, tiles_on
from hlosharding.executor.processes import check_same, is_own, is_shared
from hlosharding.executor.sharded_array import ShardedArray, as_tile, by_device, is_seen_whole, restack_tiles
from hlosharding.sharding import HloSharding, without_partial_extremes


@dataclass(eq=False)
class Executable(DeviceProgram):
    """A program on given devices that takes and gives global arrays, wherever they lie."""

    _lying_right: dict[tuple[int, Any], bool] = field(default_factory=dict)
    """Whether arrays of a sharding can be input `number` as they are: JAX takes long to say so, in every call."""
    _alike: dict[Any, bool] = field(default_factory=dict)
    """Whether two shardings lay out arrays of some rank alike."""

    def __call__(self, *arrays: Any) -> list[Any]:
        """Boundary in, boundary out: global jax arrays, numpy arrays or ShardedArrays in; jax arrays out, or
        ShardedArrays where the sharding has no NamedSharding."""
        refuse_described(self.devices)
        inputs = self.boundary.inputs
        if len(arrays) != len(inputs):
            raise ExecutionError(f"{len(arrays)} arrays for the {len(inputs)} inputs of {self.boundary.name}")
        self._check_donated(arrays)
        typed = [typed_input(array, layout.shape) for array, layout in zip(arrays, inputs, strict=True)]
        self._check_same(typed)
        with self.own_settings():
            placed = [self.place(array, number) for number, array in enumerate(typed)]
            results = self.call(*placed)
            if self._makes_empty_arrays:
                results = [_with_own_tiles(result) for result in results]
        outputs = zip(results, self.boundary.outputs, self.named_outputs, strict=True)
        return [self._wrap(result, layout, name) for result, layout, name in outputs]

    @cached_property
    def _makes_empty_arrays(self) -> bool:
        return any(0 in layout.shape.dims for layout in self.boundary.outputs)

    def _check_donated(self, arrays: Sequence[Any]) -> None:
        """ExecutionError where a buffer to be reused is another input, too: XLA's CPU client does not survive it.

        What is on no device yet has no buffer: counters that start at 0 are all the same object.
        """
        import jax

        for number in self.donate:
            is_placed = isinstance(arrays[number], jax.Array | ShardedArray)
            if is_placed and sum(array is arrays[number] for array in arrays) > 1:
                raise ExecutionError(f"input {number} is donated, and given as another input, too", remedy="copy it")

    @cached_property
    def _is_shared(self) -> bool:
        return is_shared(self.devices)

    def _check_same(self, arrays: Sequence[Any]) -> None:
        """ExecutionError where processes bring different arrays: a program would mix them, and nobody would know."""
        own = [number for number, array in enumerate(arrays) if is_own(array)] if self._is_shared else []
        if own:
            check_same({self._name(number): arrays[number] for number in own})

    def _name(self, number: int) -> str:
        """What the user calls an input, as far as he does."""
        signature = self.signature
        if signature is None or number not in signature.parameters:
            return f"input {number}"
        return f"argument {signature.names[signature.parameters.index(number)]}"

    def place(self, array: Any, number: int) -> Any:
        """Input `number`, of its type, as the boundary array that the program takes; what lies right is not copied."""
        import jax

        layout, sharding = self.boundary.inputs[number], self.input_shardings[number]
        if tuple(np.shape(array)) != layout.shape.dims:
            raise ExecutionError(f"input {number} has shape {list(np.shape(array))}, the program takes {layout.shape}")
        if self._is_dropped(array, number):
            return array
        if isinstance(array, jax.Array):
            array = _reduced(array)
        lies_right = isinstance(array, jax.Array) and self._lies_right(array, number)
        if layout.spec is not None:
            return array if lies_right else put(array, sharding, self._name(number))
        if lies_right:
            tiles = by_device(array)
        elif isinstance(array, ShardedArray) and array.sharding == layout.sharding:
            tiles = self._on_own_devices(array)
        else:
            tiles = tiles_on(array, layout.sharding, self.devices, self._name(number))
        return restack_tiles(tiles, list(self.mesh.devices.flat), layout.shape.with_dims(layout.tile), sharding)

    def _is_dropped(self, array: Any, number: int) -> bool:
        """Does nothing read input `number`, so that JAX drops the array, wherever it lies?"""
        return number in self.unread and not isinstance(array, ShardedArray)

    @cached_property
    def unread(self) -> frozenset[int]:
        """The inputs that JAX drops."""
        kept = xla_bridge.kept_inputs(self.compiled) if self.call is self.compiled else None
        inputs = enumerate(self.boundary.inputs)
        return frozenset(n for n, layout in inputs if kept is not None and n not in kept and not layout.is_stacked)

    def _lies_right(self, array: Any, number: int) -> bool:
        """Is a jax array what the program takes as input `number`, or are its local arrays the tiles stacked there?"""
        key = number, array.sharding
        if key not in self._lying_right:
            takes_tiles = self.boundary.inputs[number].is_stacked
            self._lying_right[key] = (
                self._holds_tiles(array, number)
                if takes_tiles
                else array.sharding.is_equivalent_to(self.input_shardings[number], array.ndim)
            )
        return self._lying_right[key]

    def _holds_tiles(self, array: Any, number: int) -> bool:
        """Are the local arrays of a jax array the tiles that input `number` is stacked of (partial sums are such)?"""
        devices = getattr(getattr(array.sharding, "mesh", None), "devices", None)
        if devices is None or tuple(devices.flat) != self.devices:
            return False
        wanted = self.boundary.inputs[number].sharding.meaning
        return HloSharding.from_jax(array.sharding, array.ndim).meaning == wanted

    def _on_own_devices(self, array: ShardedArray) -> dict[Any, Any]:
        """Its tiles by device: the same buffers, where they were made for these devices in this order."""
        import jax

        made_for = tuple(array.tiles.sharding.mesh.devices.flat)
        tiles = by_device(array.tiles)
        if made_for == self.devices:
            return tiles
        if set(made_for) == set(self.devices) or not is_seen_whole(array.tiles):
            return tiles_on(array, array.sharding, self.devices, "a ShardedArray")
        # Tile i belongs to partition i here as there.
        pairs = zip(made_for, self.devices, strict=True)
        mine = jax.process_index()
        return {new: jax.device_put(tiles[old], new) for old, new in pairs if new.process_index == mine}

    def _wrap(self, result: Any, layout: BoundaryArray, name: Any) -> Any:
        if layout.spec is not None:
            return self._labelled(result, name)
        if layout.label is not None:
            local = {device: as_tile(data, layout.tile) for device, data in by_device(result).items()}
            return xla_bridge.array_of(layout.shape.dims, layout.shape.dtype, layout.label, local)
        tiles = by_device(result)
        stacked = restack_tiles(tiles, self.devices, layout.shape.with_dims(layout.tile))
        return ShardedArray(stacked, layout.sharding, layout.shape.dims)

    def _labelled(self, result: Any, label: Any) -> Any:
        """Under the sharding that users know: it lays the array out alike, on a mesh of their own axes and types."""
        if label == result.sharding:
            return result
        key = label, result.sharding, result.ndim
        if key not in self._alike:
            whole = without_partial_extremes(label)
            self._alike[key] = result.sharding.is_equivalent_to(whole, result.ndim)
        if not self._alike[key]:
            return result
        local = by_device(result)
        return xla_bridge.array_of(result.shape, result.dtype, label, local, weak_type=result.weak_type)

    def shortcut(self, inputs: Sequence[Any], outputs: Sequence[Any], tree: Any) -> Any:
        """How JAX's C++ does again what a call of flat `inputs` did; None where more is needed than arrays as they are.

        `outputs`: the flat results as users see them, in a pytree as `tree` says.
        """
        boundary = self.boundary
        if self.call is not self.compiled or len(inputs) != len(boundary.inputs) or self._makes_empty_arrays:
            return None
        if len(outputs) != len(boundary.outputs) or any(layout.is_stacked for layout in boundary.outputs):
            return None
        if not all(self._is_taken(array, number) for number, array in enumerate(inputs)):
            return None
        return xla_bridge.shortcut(self.compiled, inputs, outputs, tree)

    def _is_taken(self, array: Any, number: int) -> bool:
        """Would JAX itself bring it where input `number` must lie?  Arrays that lie elsewhere we move."""
        import jax

        if self._is_dropped(array, number):
            return True
        if self.boundary.inputs[number].is_stacked or (self._is_shared and is_own(array)):
            return False
        if isinstance(array, jax.Array):
            if not array.committed:
                return number not in self.donate
            return self._lying_right.get((number, array.sharding), False)
        return isinstance(array, (np.ndarray, np.generic, bool, int, float, complex))

    def run(self, *arrays: Any) -> list[np.ndarray]:
        """As a call, with numpy arrays out; of several processes each gets all."""
        return [_gathered(result) for result in self(*arrays)]


def _reduced(array: Any) -> Any:
    """A jax array; one that is partial by max or min whole: programs know partial sums alone."""
    import jax

    whole = without_partial_extremes(array.sharding)
    return array if whole is array.sharding else jax.reshard(array, whole)


def _with_own_tiles(array: Any) -> Any:
    """An empty array anew: XLA makes all of it on every device, whatever its other dims are split into."""
    import jax

    if array.size:
        return array
    whole = np.zeros(array.shape, array.dtype)
    return jax.make_array_from_callback(array.shape, array.sharding, whole.__getitem__)


def _gathered(result: Any) -> np.ndarray:
    from jax.experimental import multihost_utils

    if isinstance(result, ShardedArray):
        return np.asarray(result if is_seen_whole(result.tiles) else result.as_jax())
    return np.asarray(result if is_seen_whole(result) else multihost_utils.process_allgather(result, tiled=True))
