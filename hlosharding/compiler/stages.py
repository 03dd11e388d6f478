"""The stages of `hs.jit`: traced, propagated, partitioned, compiled.  Each can be looked at, each leads to the next.

Floor: compiler.  What JAX's stages offer (`jax.stages`) these do, too, under the same names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hlosharding.compiler.partitioned import CompiledFunction, Partitioned
from hlosharding.compiler.split_explanation import SplitExplanation
from hlosharding.compiler.warm_start import ProgramOnce, Trace, once_lowered, once_traced
from hlosharding.cost import Machine, Topology, cost
from hlosharding.errors import TraceError
from hlosharding.executor import NO_OPTIONS
from hlosharding.frontends import TracedCall, first_tracer, load
from hlosharding.ir import Module
from hlosharding.partitioner import PartitionOptions
from hlosharding.propagation import Explanation, Propagation, propagate
from hlosharding.sharding import HloSharding, without_partial_extremes


def _told(name: str, about: str) -> Any:
    """What JAX's own `Traced` says under that name."""
    return property(lambda stage: getattr(stage._of_jax, name), doc=about)


class _OfOneTrace:
    """What `jax.stages` say of the arguments and the result, at every stage."""

    @property
    def _of_jax(self) -> Any:
        """JAX's own `Traced`."""
        raise NotImplementedError

    in_tree = _told("in_tree", "Tree of the arguments, static ones left out.")
    out_tree = _told("out_tree", "Tree of the result.")
    in_avals = _told("in_avals", "Pytree of the arguments' abstract values.")
    donate_argnums = _told("donate_argnums", "Numbers of the flat arguments whose buffers may be reused.")
    args_info = _told("args_info", "Pytree of shapes, types, and whether the buffer may be reused.")
    out_info = _told("out_info", "Pytree of `jax.ShapeDtypeStruct`.")


@dataclass(frozen=True, eq=False, repr=False)
class Traced(_OfOneTrace):
    """A function traced for given shapes; `module` is its HLO with the annotations put on."""

    call: TracedCall
    usual: Callable[[], Any]
    """JAX's own trace, of `jax.jit` of the function."""
    compiler_options: dict[str, Any] | None = None
    keep_unused: bool = False
    known: dict[Any, Partitioned] = field(default_factory=dict[Any, Any])
    """What calls of the function were lowered to."""

    def __repr__(self) -> str:
        return f"Traced({self.module!r})"

    @property
    def _of_jax(self) -> Any:
        return self.call.jax

    @cached_property
    def module(self) -> Module:
        """The whole program, not split yet."""
        return self.call.module()

    @property
    def jaxpr(self) -> Any:
        """JAX's own trace."""
        return self.call.jax.jaxpr

    @property
    def fun_name(self) -> str:
        """The function's."""
        return self.call.jax.fun_name

    def propagate(self) -> PropagatedStage:
        """Find a sharding for every value; open inputs and outputs are chosen too."""
        return PropagatedStage(self, propagate(self.module))

    def lower(self, **for_jax: Any) -> Any:
        """Propagate and partition in one step, under the name JAX gives it: `f.trace(x).lower().compile()`.

        `for_jax`: options with which `jax.export` asks for JAX's own `Lowered`, of the whole function.
        """
        if for_jax:
            return self.usual().lower(**for_jax)
        program = self.program()
        if not program.is_known:
            _ = program.partitioned
        return PartitionedStage(self, program)

    def program(self) -> ProgramOnce:
        """The per-device program, which is looked for before this is lowered and partitioned."""
        if "module" in self.__dict__:  # somebody has it, and may have changed it
            return once_lowered(self.as_called, self.module)
        return once_traced(self.as_called, lambda: self.module, self.known)

    @property
    def as_called(self) -> Trace:
        """As a call compiles it."""
        return Trace(self.call, self.compiler_options or {}, self.keep_unused)

    def as_text(self) -> str:
        """HLO text."""
        return self.module.to_hlo_text()


@dataclass(frozen=True, eq=False, repr=False)
class PropagatedStage:
    """Every value has its sharding."""

    traced: Traced
    propagation: Propagation

    def __repr__(self) -> str:
        return f"PropagatedStage({self.module!r})"

    @property
    def module(self) -> Module:
        """The module with all shardings."""
        return self.propagation.module

    @property
    def shardings(self) -> dict[str, HloSharding | None]:
        """Instruction name -> sharding or None."""
        return self.propagation.shardings

    def explain(self, name: str) -> Explanation:
        """Why a value has its sharding."""
        return self.propagation.explain(name)

    def partition(
        self, *, machine: Machine | Topology | None = None, options: PartitionOptions | None = None
    ) -> PartitionedStage:
        """Rewrite to per-device shapes."""
        program = once_lowered(self.traced.as_called, self.propagation, machine=machine, options=options)
        if not program.is_known:
            _ = program.partitioned
        return PartitionedStage(self.traced, program)

    def as_text(self) -> str:
        """HLO text with shardings."""
        return self.module.to_hlo_text()


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedStage(_OfOneTrace):
    """The per-device program; `partitioned` answers questions about cost."""

    traced: Traced
    program: ProgramOnce

    def __repr__(self) -> str:
        return f"PartitionedStage({self.partitioned!r})"

    @property
    def _of_jax(self) -> Any:
        return self.traced.call.jax

    @property
    def partitioned(self) -> Partitioned:
        """The program in hand.  Of one that was compiled before it is read, or made anew, when it is asked for."""
        return self.program.partitioned

    def explain(self, name: str) -> SplitExplanation:
        """Why an op is split as it is, and what other splits would cost."""
        return self.partitioned.explain(name)

    @property
    def module(self) -> Module:
        """The local module."""
        return self.partitioned.module

    def as_python(self) -> str:
        """Source of the `jax.shard_map` program."""
        return self.partitioned.as_python()

    def as_text(self, dialect: str | None = None, **options: Any) -> str:
        """As of a `jax.stages.Lowered`: the whole function as JAX lowers it, not split.

        The per-device program is `partitioned.to_hlo_text()`, or `as_python()`.
        """
        return self.traced.usual().lower().as_text(dialect, **options)

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """As of a `jax.stages.Lowered`: the whole function as JAX lowers it, not split."""
        return self.traced.usual().lower().compiler_ir(dialect)

    def cost_analysis(self) -> dict[str, float]:
        """Figures per device and run, under the keys jax uses, with the bytes received beside them."""
        priced = self.partitioned.cost
        return {"flops": priced.flops, "bytes received": priced.comm_bytes, "seconds": priced.time_s}

    def compile(
        self,
        devices: Sequence[Any] | None = None,
        *,
        compiler_options: dict[str, Any] | None = None,
        device_assignment: Sequence[Any] | None = None,
    ) -> Compiled:
        """Make it executable on `devices` (default: those of the mesh).  `compiler_options`: for XLA.

        `device_assignment`: JAX's name of `devices`.
        """
        if device_assignment is not None:
            self._check_number(device_assignment)
            devices = device_assignment
        is_as_called = devices is None and not compiler_options
        known = self.program.executable() if is_as_called else None
        if known is not None:
            return Compiled(self, CompiledFunction(self.traced.call.signature, known))
        options = {**(self.traced.compiler_options or {}), **(compiler_options or {})}
        start = time.perf_counter()
        function = self._function(devices, options)
        _ = function.executable.compiled  # now, not at the first call
        self.program.keep(function.executable if is_as_called else None, time.perf_counter() - start)
        return Compiled(self, function)

    def _check_number(self, devices: Sequence[Any]) -> None:
        if len(devices) != self.partitioned.num_partitions:
            raise TraceError(
                "device_assignment passed to `.compile` must match the device_assignment calculated from array"
                f" shardings and out_shardings: {len(devices)} for a program of {self.partitioned.num_partitions}",
                remedy="name as many devices, in the order of partitions",
            )

    def _function(
        self, devices: Sequence[Any] | None = None, options: Mapping[str, Any] = NO_OPTIONS
    ) -> CompiledFunction:
        signature = self.module.signature
        assert signature is not None, "a traced module has one"
        found = signature.devices if devices is None else devices
        donate, keep_unused = self.traced.call.donated, self.traced.keep_unused
        return self.partitioned.compile(found, donate=donate, compiler_options=options, keep_unused=keep_unused)


@dataclass(frozen=True, eq=False, repr=False)
class Compiled(_OfOneTrace):
    """An executable; call it with the traced function's arguments."""

    stage: PartitionedStage
    function: CompiledFunction

    def __repr__(self) -> str:
        return f"Compiled({self.partitioned!r})"

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        tracer = first_tracer((arguments, keywords))
        if tracer is not None:
            raise TypeError(
                "Cannot apply JAX transformations to a function lowered and compiled for a particular signature."
                f" Detected argument of Tracer type {type(tracer)}; call the function that hs.jit made instead"
            )
        flat = self.function.boundary.flatten(arguments, keywords)
        self._check_types(flat)
        self._check_places(flat)
        return self.function.boundary.unflatten(self.function.executable(*flat))

    @property
    def _names(self) -> Sequence[str]:
        return self.stage.traced.call.signature.names

    def _check_types(self, flat: Sequence[Any]) -> None:
        """TraceError, in JAX's words, where arrays are of other shapes or types than the program was compiled for."""
        layouts = self.function.executable.boundary.inputs
        wrong = [
            f"\nArgument '{name}' compiled with {_in_words(layout.shape)} and called with {_in_words(array)}"
            for array, layout, name in zip(flat, layouts, self._names, strict=True)
            if not layout.takes(array)
        ]
        if wrong:
            raise TraceError(
                "Argument types differ from the types for which this computation was compiled. The mismatches are:"
                + "".join(wrong[:10]),
                remedy="compile for these, or call the function that hs.jit made",
            )

    def _check_places(self, flat: Sequence[Any]) -> None:
        """TraceError, in JAX's words, where arrays are committed to other places than the program was compiled for."""
        import jax

        executable = self.function.executable
        # What is not committed JAX moves by itself, and what nothing reads it leaves where it is.
        wrong = [
            f"\nArgument '{name}' compiled for {wanted} and called with {array.sharding}"
            for n, (array, wanted, name) in enumerate(zip(flat, executable.named_inputs, self._names, strict=True))
            if isinstance(wanted, jax.sharding.Sharding) and isinstance(array, jax.Array) and array.committed
            and n not in executable.unread
            and not without_partial_extremes(array.sharding).is_equivalent_to(wanted, array.ndim)
        ]  # fmt: skip
        if wrong:
            raise TraceError(
                "Computation was compiled for input shardings that disagree with the shardings of arguments passed to"
                f" it. Here are the {len(wrong)} mismatches:{''.join(wrong[:10])}\n",
                remedy="lay them out so with jax.device_put",
            )

    @property
    def _of_jax(self) -> Any:
        return self.stage.traced.call.jax

    @property
    def out_info(self) -> Any:
        """Pytree of `jax.ShapeDtypeStruct`, with the shardings that JAX can say."""
        import jax

        def described(info: Any, sharding: Any) -> Any:
            known = sharding if isinstance(sharding, jax.sharding.Sharding) else None
            return jax.ShapeDtypeStruct(info.shape, info.dtype, sharding=known)

        shardings = self.function.executable.named_outputs
        infos = [described(*pair) for pair in zip(jax.tree.leaves(self._of_jax.out_info), shardings, strict=True)]
        return jax.tree.unflatten(self.out_tree, infos)

    @property
    def partitioned(self) -> Partitioned:
        """The program that runs."""
        return self.stage.partitioned

    def as_python(self) -> str:
        """Source of the program that runs."""
        return self.partitioned.as_python()

    def as_text(self) -> str:
        """The HLO that XLA made of it."""
        return self.function.executable.compiled.as_text()

    def cost_analysis(self) -> Any:
        """XLA's own; where it gives none (for devices that are only described), ours of what it compiled."""
        found = self.function.executable.compiled.cost_analysis()
        return self._priced() if found is None else found

    def _priced(self) -> dict[str, float]:
        priced = cost(load(self.as_text(), format="hlo"))
        traffic = priced.memory_traffic_bytes
        return {"flops": priced.flops, "transcendentals": priced.transcendentals, "bytes accessed": traffic}

    def memory_analysis(self) -> Any:
        """XLA's own."""
        return self.function.executable.compiled.memory_analysis()

    def runtime_executable(self) -> Any:
        """XLA's executable."""
        return self.function.executable.compiled.runtime_executable()

    # What JAX's `serialize_executable` and the like ask a `jax.stages.Compiled` for: that of our program.

    @property
    def _executable(self) -> Any:
        return self.function.executable.compiled._executable

    @property
    def _params(self) -> Any:
        return self.function.executable.compiled._params

    @property
    def _no_kwargs(self) -> bool:
        return False

    @property
    def input_shardings(self) -> Any:
        """`(args, kwargs)`: a jax sharding where it has a name, else an HloSharding."""
        import jax

        return jax.tree.unflatten(self.in_tree, self.function.executable.named_inputs)

    @property
    def output_shardings(self) -> Any:
        """Likewise, in the tree of the result."""
        import jax

        return jax.tree.unflatten(self.out_tree, self.function.executable.named_outputs)


def _in_words(array: Any) -> str:
    """Its type and dims."""
    return f"{getattr(array, 'dtype', type(array).__name__)}{list(getattr(array, 'dims', np.shape(array)))}"
