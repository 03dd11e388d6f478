"""A generated program compiled for given devices: its mesh, the shardings of its boundary, what JAX and XLA made of it.

Floor: executor.  Takes and gives boundary arrays; where users' arrays lie is the business of `executable.py`.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from hlosharding import xla_bridge
from hlosharding.collector import collector_waits
from hlosharding.errors import ExecutionError, ShardingError
from hlosharding.executor.axes import jax_mesh
from hlosharding.executor.boundary import Boundary, BoundaryArray
from hlosharding.executor.cpu_int2 import refuse_cpu_int2
from hlosharding.executor.custom_calls import kernels_of, prepare_custom_calls
from hlosharding.executor.elided import refuse_elided
from hlosharding.executor.source import ProgramSource
from hlosharding.executor.text import comment_text
from hlosharding.ir import FunctionBoundary, Module
from hlosharding.sharding import shortest

_numbers = count()
_GPUS = frozenset({"gpu", "cuda", "rocm"})
# XLA moves a reduce-scatter that ends a loop's iteration into the next one, and carries there what is not reduced yet:
# all gradients of a layer, whole.  It does so to those in its input; those that it makes itself, of the all-reduces of
# its own partitioner, stay.  What fits with `jax.jit` must fit with us; who has the memory may set the option.  The XLA
# of jax 0.11 has it no more.
_ON_GPUS = {"xla_gpu_enable_pipelined_reduce_scatter": False}
_SUB_BYTE = frozenset({"s2", "s4", "u2", "u4", "f4e2m1fn"})


def load_source(module: Module, written: ProgramSource) -> Callable[[Any], Any]:
    """`program` of the executed source: mesh -> function on global (or stacked) arrays.

    ExecutionError where the module holds what may not run.
    """
    prepare_custom_calls(module)
    refuse_elided(module)
    refuse_cpu_int2(module)
    name = f"<hlosharding {comment_text(module.name)} {next(_numbers)}>"
    # Tracebacks and debuggers find the text here.
    # Without a time of change, so that `linecache.checkcache` does not drop what is no file.
    linecache.cache[name] = (len(written.text), None, written.text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {
        "CONSTANTS": written.constants,
        "CALLBACKS": module.callbacks,
        "KERNELS": kernels_of(module),
        "__name__": "hlosharding_program",
    }
    exec(compile(written.text, name, "exec"), namespace)
    return namespace["program"]


@dataclass(eq=False)
class DeviceProgram:
    """A program on given devices; partition i runs on `devices[i]`."""

    boundary: Boundary
    devices: tuple[Any, ...]
    build: Callable[[Any], Callable[..., Any]] | None = None
    """The program as a function, given a mesh; None where it is `loaded`."""
    donate: tuple[int, ...] = ()
    compiler_options: dict[str, Any] = field(default_factory=dict)
    """For XLA."""
    signature: FunctionBoundary | None = None
    """Of the traced function, which knows what its user calls the inputs."""
    loaded: Any = None
    """The `jax.stages.Compiled` that an equal program left: this one is not lowered."""
    keep_unused: bool = False
    """Are inputs that nothing reads laid out, and taken by the executable?"""

    @cached_property
    def mesh(self) -> Any:
        """The jax mesh of the generated program."""
        return self.boundary.axes.mesh(self.devices)

    @cached_property
    def input_shardings(self) -> tuple[Any, ...]:
        """The jax sharding each boundary array must have."""
        return tuple(self._jax_sharding(layout) for layout in self.boundary.inputs)

    @cached_property
    def output_shardings(self) -> tuple[Any, ...]:
        """The jax sharding each boundary array comes out with."""
        return tuple(self._jax_sharding(layout) for layout in self.boundary.outputs)

    @cached_property
    def user_mesh(self) -> Any:
        """The user's own mesh over these devices; None where the program's axes are the same, or there is none."""
        info = self.boundary.user_mesh
        return info and jax_mesh([self.devices[i] for i in info.device_ids], info.sizes, info.names)

    def _jax_sharding(self, layout: BoundaryArray) -> Any:
        sharding = shortest(self._sharding_over_axes(layout))
        return sharding if layout.memory is None else sharding.with_memory_kind(layout.memory)

    def _sharding_over_axes(self, layout: BoundaryArray) -> Any:
        import jax

        # Of a mesh that the program splits further, users still see their own axes where these say it.
        if layout.spec is not None and self.user_mesh is not None:
            try:
                return layout.sharding.to_jax(self.user_mesh)
            except ShardingError:
                pass
        return jax.sharding.NamedSharding(self.mesh, layout.partition_spec(self.boundary.axes))

    @contextmanager
    def own_settings(self) -> Iterator[None]:
        """The program's width, rules of broadcasting and mesh, whatever `jax.set_mesh` and the like say around it.

        Why JAX traces anew is explained of users' functions alone.
        """
        import jax

        width = jax.enable_x64(True) if self.boundary.is_wide else nullcontext()
        mesh = jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh)
        with width, jax.numpy_rank_promotion("allow"), mesh, jax.explain_cache_misses(False):
            yield

    @cached_property
    def jitted(self) -> Any:
        """`jax.jit` of the generated program over boundary arrays."""
        assert self.build is not None, "what was loaded is not lowered"
        return xla_bridge.jit(
            self._weakly_typed(self.build(self.mesh)),
            in_shardings=self.input_shardings,
            out_shardings=self.output_shardings,
            donate_argnums=self.donate,
            keep_unused=self.keep_unused,
        )

    def _weakly_typed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the weak types of its outputs: the source computes in types that are all strong."""
        weak = [layout.is_weak and layout.spec is not None for layout in self.boundary.outputs]
        if not any(weak):
            return function

        def typed(*arrays: Any) -> Any:
            results = function(*arrays)
            return type(results)([xla_bridge.weakly_typed(r) if w else r for r, w in zip(results, weak, strict=True)])

        return typed

    @cached_property
    @collector_waits
    def lowered(self) -> Any:
        """The program traced and lowered by JAX."""
        with self.own_settings():
            return self.jitted.lower(*self.abstract_inputs)

    @cached_property
    def compiled(self) -> Any:
        """And compiled by XLA."""
        if self.loaded is not None:
            return self.loaded
        lowered = self.lowered
        with self.own_settings():
            try:
                return lowered.compile(self._options or None)
            except RuntimeError as error:
                what = f"XLA could not compile {self.boundary.name}: {str(error)[:2000]}"
                raise xla_bridge.compile_error()(what) from error

    def load(self, stored: xla_bridge.StoredExecutable) -> bool:
        """Take the executable from JAX's compilation cache; False where it has it no more."""
        if self.boundary.calls_lapack:
            xla_bridge.load_lapack()
        outputs = self._abstract(self.boundary.outputs, self.output_shardings)
        flat = xla_bridge.FlatProgram(
            self.boundary.name, self._mesh_devices, self.abstract_inputs, outputs, self.donate, self._options
        )
        self.loaded = xla_bridge.read_executable(stored, flat)
        return self.loaded is not None

    def stored(self) -> xla_bridge.StoredExecutable | None:
        """The executable in JAX's compilation cache; None where it keeps none that is all of the program."""
        if self.is_jitted:
            return None
        return xla_bridge.stored_executable(self.lowered, self._mesh_devices, self._options)

    @property
    def _mesh_devices(self) -> tuple[Any, ...]:
        return tuple(self.mesh.devices.flat)

    @property
    def _options(self) -> dict[str, Any]:
        """For XLA: the user's, over what keeps our program in the memory that XLA's own partitioner takes."""
        set_by_user = os.environ.get("XLA_FLAGS", "")
        own = _ON_GPUS if self.devices[0].platform in _GPUS else {}
        # Whoever names one of these, on or off, has decided.
        unset = {name: v for name, v in own.items() if name not in set_by_user and name not in self.compiler_options}
        known = {name: v for name, v in unset.items() if xla_bridge.has_compiler_option(name, self.devices[0])}
        return known | self.compiler_options

    @cached_property
    def call(self) -> Callable[..., Any]:
        """What a call runs.  A compiled program refuses inputs of less than a byte: JAX tells their layouts apart."""
        return self.jitted if self.is_jitted else self.compiled

    @property
    def is_jitted(self) -> bool:
        """Is it not the compiled program that is called?"""
        return any(layout.shape.element_type in _SUB_BYTE for layout in self.boundary.inputs)

    @cached_property
    def named_inputs(self) -> list[Any]:
        """Per input the jax sharding that users know it by, else the HloSharding."""
        return [self._named(*pair) for pair in zip(self.boundary.inputs, self.input_shardings, strict=True)]

    @cached_property
    def named_outputs(self) -> list[Any]:
        """Likewise of the outputs."""
        return [self._named(*pair) for pair in zip(self.boundary.outputs, self.output_shardings, strict=True)]

    def _named(self, layout: BoundaryArray, sharding: Any) -> Any:
        import jax

        if layout.spec is None or layout.label is not None:
            return layout.label or layout.sharding
        is_users = self.signature is not None  # pieces of programs stay on meshes
        if is_users and self.boundary.user_mesh is None and len(self.devices) == 1:
            return jax.sharding.SingleDeviceSharding(self.devices[0], memory_kind=sharding.memory_kind)
        return sharding

    @property
    def abstract_inputs(self) -> list[Any]:
        """Shapes, types and shardings of the boundary arrays."""
        return self._abstract(self.boundary.inputs, self.input_shardings)

    def _abstract(self, layouts: Sequence[BoundaryArray], shardings: Sequence[Any]) -> list[Any]:
        import jax

        return [
            jax.ShapeDtypeStruct(
                layout.boundary_shape(len(self.devices)),
                layout.shape.dtype,
                sharding=sharding,
                weak_type=layout.is_weak and not layout.is_stacked,
            )
            for layout, sharding in zip(layouts, shardings, strict=True)
        ]


def refuse_described(devices: Sequence[Any]) -> None:
    """ExecutionError where devices are only described, as those of `hs.topology`: programs compile for them."""
    if devices and xla_bridge.is_described(devices[0]):
        raise ExecutionError(
            f"the mesh is of {devices[0].device_kind} devices that are described, not there",
            remedy="take .lower(...).compile() for what XLA makes of the program; to run it, a mesh of jax.devices()",
        )
