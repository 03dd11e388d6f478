"""A generated program on given devices: arrays are brought where they must lie, and results get their users' names.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, ShardingError
from hlosharding.executor.boundary import BoundaryArray
from hlosharding.executor.callbacks import check_callbacks
from hlosharding.executor.cpu_int2 import refuse_cpu_int2
from hlosharding.executor.raw import prepare_custom_calls
from hlosharding.executor.sharded_array import ShardedArray, join_tiles, register, restacked, stacked
from hlosharding.executor.source import Source
from hlosharding.ir import Module, Shape
from hlosharding.sharding import HloSharding

_SUB_BYTE = frozenset({"s2", "s4", "u2", "u4", "f4e2m1fn"})


@dataclass(eq=False)
class Executable:
    """A program on given devices; partition i runs on `devices[i]`."""

    module: Module
    written: Source
    build: Callable[[Any], Callable[..., Any]]
    """The program as a function, given a mesh."""
    devices: tuple[Any, ...]
    donate: tuple[int, ...] = ()
    compiler_options: dict[str, Any] = field(default_factory=dict)
    """For XLA."""
    _lies_right: dict[tuple[int, Any], bool] = field(default_factory=dict)
    """Whether arrays of a sharding can be input `number` as they are: JAX takes long to say so, in every call."""
    _alike: dict[Any, bool] = field(default_factory=dict)
    """Whether two shardings lay out arrays of some rank alike."""

    @cached_property
    def mesh(self) -> Any:
        """The jax mesh of the generated program."""
        import jax

        axes = self.written.axes
        order = [self.devices[d] for d in axes.device_ids]
        return jax.sharding.Mesh(np.array(order, dtype=object).reshape(axes.sizes), axes.names)

    @cached_property
    def input_shardings(self) -> tuple[Any, ...]:
        """The jax sharding each boundary array must have."""
        return tuple(self._jax_sharding(layout) for layout in self.written.inputs)

    @cached_property
    def output_shardings(self) -> tuple[Any, ...]:
        """The jax sharding each boundary array comes out with."""
        return tuple(self._jax_sharding(layout) for layout in self.written.outputs)

    @cached_property
    def user_mesh(self) -> Any:
        """The user's own mesh over these devices; None where the program's axes are the same, or there is none."""
        import jax

        if self.module.callbacks:
            return None  # JAX takes no second mesh in a program that calls back into Python
        info, axes = self.module.mesh, self.written.axes
        if info is None or tuple(info.names) == axes.names or info.num_devices != axes.size:
            return None
        order = [self.devices[d] for d in info.device_ids]
        return jax.sharding.Mesh(np.array(order, dtype=object).reshape(info.sizes), info.names)

    def _jax_sharding(self, layout: BoundaryArray) -> Any:
        sharding = self._sharding_over_axes(layout)
        return sharding if layout.memory is None else sharding.with_memory_kind(layout.memory)

    def _sharding_over_axes(self, layout: BoundaryArray) -> Any:
        import jax

        axes = self.written.axes
        if layout.spec is None:
            spec = jax.sharding.PartitionSpec(axes.names)
        else:
            # Of a mesh that the program splits further, users still see their own axes where these say it.
            if self.user_mesh is not None:
                try:
                    return _shortest(layout.sharding.to_jax(self.user_mesh))
                except ShardingError:
                    pass
            parts = [tuple(axes.names[p] for p in dim) or (None,) for dim in layout.spec]
            spec = jax.sharding.PartitionSpec(*[p if len(p) != 1 else p[0] for p in parts])
        return _shortest(jax.sharding.NamedSharding(self.mesh, spec))

    @contextmanager
    def _own_settings(self) -> Iterator[None]:
        """The width of the program and its own mesh, whatever `jax.set_mesh` and the like say around it."""
        import jax

        width = jax.enable_x64(True) if self.written.is_wide else nullcontext()
        with width, jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
            yield

    @cached_property
    def jitted(self) -> Any:
        """`jax.jit` of the generated program over boundary arrays."""
        import jax

        prepare_custom_calls(self.module)
        check_callbacks(self.module)
        refuse_cpu_int2(self.module)
        return jax.jit(
            self._weakly_typed(self.build(self.mesh)),
            in_shardings=self.input_shardings,
            out_shardings=self.output_shardings,
            donate_argnums=self.donate,
        )

    def _weakly_typed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the weak types of its outputs: the source computes in types that are all strong."""
        weak = [layout.is_weak and layout.spec is not None for layout in self.written.outputs]
        if not any(weak):
            return function

        def typed(*arrays: Any) -> Any:
            results = function(*arrays)
            return type(results)([xla_bridge.weakly_typed(r) if w else r for r, w in zip(results, weak, strict=True)])

        return typed

    @cached_property
    def lowered(self) -> Any:
        """The program traced and lowered by JAX."""
        with self._own_settings():
            return self.jitted.lower(*self.abstract_inputs)

    @cached_property
    def compiled(self) -> Any:
        """And compiled by XLA."""
        with self._own_settings():
            try:
                return self.lowered.compile(self.compiler_options or None)
            except RuntimeError as error:
                raise ExecutionError(f"XLA could not compile {self.module.name}: {str(error)[:2000]}") from error

    @property
    def named_inputs(self) -> list[Any]:
        """Per input the jax sharding that users know it by, else the HloSharding."""
        return [_named(*pair) for pair in zip(self.written.inputs, self.input_shardings, strict=True)]

    @property
    def named_outputs(self) -> list[Any]:
        """Likewise of the outputs."""
        return [_named(*pair) for pair in zip(self.written.outputs, self.output_shardings, strict=True)]

    @cached_property
    def _call(self) -> Callable[..., Any]:
        """What a call runs.  A compiled program refuses inputs of less than a byte: JAX tells their layouts apart."""
        given = self.written.inputs
        return self.jitted if any(layout.shape.element_type in _SUB_BYTE for layout in given) else self.compiled

    @property
    def abstract_inputs(self) -> list[Any]:
        """Shapes, types and shardings of the boundary arrays."""
        import jax

        return [
            jax.ShapeDtypeStruct(layout.boundary_shape(len(self.devices)), layout.shape.dtype, sharding=sharding)
            for layout, sharding in zip(self.written.inputs, self.input_shardings, strict=True)
        ]

    def __call__(self, *arrays: Any) -> list[Any]:
        """Boundary in, boundary out: global jax arrays, numpy arrays or ShardedArrays in; jax arrays out, or
        ShardedArrays where the sharding has no NamedSharding."""
        inputs = self.written.inputs
        if len(arrays) != len(inputs):
            raise ExecutionError(f"{len(arrays)} arrays for the {len(inputs)} inputs of {self.module.name}")
        self._check_donated(arrays)
        typed = [_typed(array, layout.shape) for array, layout in zip(arrays, inputs, strict=True)]
        with self._own_settings():
            placed = [self.place(array, number) for number, array in enumerate(typed)]
            results = self._call(*placed)
        return [self._wrap(result, layout) for result, layout in zip(results, self.written.outputs, strict=True)]

    def _check_donated(self, arrays: Sequence[Any]) -> None:
        """ExecutionError where a buffer to be reused is another input, too: XLA's CPU client does not survive it."""
        for number in self.donate:
            if sum(array is arrays[number] for array in arrays) > 1:
                raise ExecutionError(f"input {number} is donated, and given as another input, too", remedy="copy it")

    def place(self, array: Any, number: int) -> Any:
        """Input `number`, of its type, as the boundary array that the program takes; what lies right is not copied."""
        import jax

        layout, sharding = self.written.inputs[number], self.input_shardings[number]
        if tuple(np.shape(array)) != layout.shape.dims:
            raise ExecutionError(f"input {number} has shape {list(np.shape(array))}, the program takes {layout.shape}")
        if layout.spec is not None:
            if isinstance(array, jax.Array):
                key = number, array.sharding
                if key not in self._lies_right:
                    self._lies_right[key] = array.sharding.is_equivalent_to(sharding, array.ndim)
                if self._lies_right[key]:
                    return array
            elif isinstance(array, ShardedArray):
                array = np.asarray(array)
            return jax.device_put(array, sharding)
        if isinstance(array, jax.Array) and self._holds_tiles(array, number):
            tiles = {shard.device: shard.data.reshape(layout.tile or (1,)) for shard in array.addressable_shards}
            return restacked(tiles, list(self.mesh.devices.flat), sharding)
        if isinstance(array, ShardedArray) and array.sharding == layout.sharding:
            return self._relabelled(array.tiles, sharding)
        return self._relabelled(stacked(np.asarray(array), layout.sharding, self.devices), sharding)

    def _holds_tiles(self, array: Any, number: int) -> bool:
        """Are the local arrays of a jax array the tiles that input `number` is stacked of (partial sums are such)?"""
        key = number, array.sharding
        if key not in self._lies_right:
            devices = getattr(getattr(array.sharding, "mesh", None), "devices", None)
            layout = self.written.inputs[number]
            self._lies_right[key] = (
                devices is not None
                and tuple(devices.flat) == self.devices
                and HloSharding.from_jax(array.sharding, array.ndim).meaning == layout.sharding.meaning
            )
        return self._lies_right[key]

    def _relabelled(self, tiles: Any, sharding: Any) -> Any:
        """Tiles stacked in device order as the program's array, stacked in mesh order: the same buffers."""
        by_device = {shard.device: shard.data for shard in tiles.addressable_shards}
        if not set(by_device) <= set(self.devices):
            # They were made for other devices: tile i belongs to partition i here as there.
            local = [shard.data for shard in sorted(tiles.addressable_shards, key=lambda s: s.index[0].start or 0)]
            by_device = {s.device: s.data for s in join_tiles(local, self.devices).addressable_shards}
        return restacked(by_device, list(self.mesh.devices.flat), sharding)

    def _wrap(self, result: Any, layout: BoundaryArray) -> Any:
        if layout.spec is not None:
            return self._labelled(result, layout.label)
        if layout.label is not None:
            local = [data.reshape(layout.tile) for data in _local_arrays(result, layout.label)]
            return xla_bridge.array_of(layout.shape.dims, layout.label, local)
        register()
        tiles = restacked({s.device: s.data for s in result.addressable_shards}, self.devices)
        return ShardedArray(tiles, layout.sharding, layout.shape.dims)

    def _labelled(self, result: Any, label: Any) -> Any:
        """Under the sharding that the user named: it lays the array out alike, on a mesh of his own axes and types."""
        if label is None or label == result.sharding:
            return result
        key = label, result.sharding, result.ndim
        if key not in self._alike:
            self._alike[key] = result.sharding.is_equivalent_to(label, result.ndim)
        if not self._alike[key]:
            return result
        return xla_bridge.array_of(result.shape, label, _local_arrays(result, label), weak_type=result.weak_type)

    def shortcut(self, inputs: Sequence[Any], outputs: Sequence[Any], tree: Any) -> Any:
        """How JAX's C++ does again what a call of flat `inputs` did; None where more is needed than arrays as they are.

        `outputs`: the flat results as users see them, in a pytree as `tree` says.
        """
        boundary = self.written
        if self._call is not self.compiled or len(inputs) != len(boundary.inputs):
            return None
        if len(outputs) != len(boundary.outputs) or any(layout.is_stacked for layout in boundary.outputs):
            return None
        if not all(self._is_taken(array, number) for number, array in enumerate(inputs)):
            return None
        return xla_bridge.shortcut(self.compiled, inputs, outputs, tree)

    def _is_taken(self, array: Any, number: int) -> bool:
        """Would JAX itself bring it where input `number` must lie?  Arrays that lie elsewhere we move."""
        import jax

        if self.written.inputs[number].is_stacked:
            return False
        if isinstance(array, jax.Array):
            if not array.committed:
                return number not in self.donate
            return self._lies_right.get((number, array.sharding), False)
        return isinstance(array, (np.ndarray, np.generic, bool, int, float, complex))

    def run(self, *arrays: Any) -> list[np.ndarray]:
        """As a call, with numpy arrays out."""
        return [np.asarray(result) for result in self(*arrays)]


def _local_arrays(array: Any, sharding: Any) -> list[Any]:
    """Those of this process, in the order of the sharding's devices."""
    by_device = {shard.device: shard.data for shard in array.addressable_shards}
    return [by_device[device] for device in sharding.mesh.devices.flat if device in by_device]


def _shortest(sharding: Any) -> Any:
    """As JAX writes what it found out: without dims at the end of the spec that are not split."""
    import jax

    if sharding.spec.unreduced:
        return sharding
    entries = list(sharding.spec.partitions)
    while entries and entries[-1] is None:
        entries.pop()
    return jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*entries))


def _named(layout: BoundaryArray, sharding: Any) -> Any:
    return layout.sharding if layout.spec is None else layout.label or sharding


def _typed(array: Any, shape: Shape) -> Any:
    """An input of the type that the program takes: 64 bits are cut where JAX does, as the user set it."""
    import jax

    if not hasattr(array, "dtype"):
        return np.asarray(array, shape.dtype)
    if array.dtype == shape.dtype:
        return array
    if jax.dtypes.canonicalize_dtype(array.dtype) != shape.dtype:
        raise ExecutionError(f"an input of type {array.dtype}, the program takes {shape}")
    return np.asarray(array).astype(shape.dtype)
