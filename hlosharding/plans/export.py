"""`hs.export_plan`: what a stock `jax.jit` needs to follow a plan, as values and as Python to paste.

Floor: plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hlosharding.compiler import OptimizedProgram, Partitioned, compile_by_xla, partition
from hlosharding.cost import cost
from hlosharding.errors import ExecutionError, PlanError
from hlosharding.ir import FunctionBoundary, Instruction, Module
from hlosharding.notebook import InNotebooks
from hlosharding.plans.constraints import Constraint, constraints, spec_of, values_of
from hlosharding.plans.difference import Difference, difference
from hlosharding.plans.exported_text import constraint_lines, head_text, notes_text, shardings_text, unflatten
from hlosharding.plans.side import Side
from hlosharding.plans.wanted import Leaves, WantedShardings
from hlosharding.propagation import Propagation
from hlosharding.sharding import HloSharding, MeshInfo, prime_factors, uneven_dims
from hlosharding.whole_files import write_whole


@dataclass(frozen=True)
class ExportedPlan(InNotebooks):
    """A plan without this library: shardings of arguments and results, and lines for the function itself.

    `str` is Python to paste; `export_plan` has an example.
    """

    partitioned: Partitioned
    """The program whose plan it is."""
    mesh: MeshInfo
    in_specs: tuple[Any, ...]
    """Of each flat argument its PartitionSpec; None: left to XLA."""
    out_specs: tuple[Any, ...]
    constraints: tuple[Constraint, ...]
    """Lines for the function: without them XLA would lay these values out otherwise."""
    unsaid: tuple[str, ...]
    """What no PartitionSpec, or no line, can say."""
    stock: Module
    """The program as XLA gets it so."""

    @cached_property
    def jax_mesh(self) -> Any:
        """A `jax.sharding.Mesh` of the traced mesh's devices, or of JAX's.  Raises ExecutionError for too few."""
        import jax
        import numpy as np
        from jax.sharding import Mesh

        signature = self.stock.signature
        devices = signature.devices if signature is not None and signature.devices is not None else jax.devices()
        if len(devices) < self.mesh.num_devices:
            raise ExecutionError(f"the plan is for {self.mesh.num_devices} devices, JAX has {len(devices)}")
        return Mesh(np.array(devices)[list(self.mesh.device_ids)].reshape(self.mesh.sizes), self.mesh.names)

    @property
    def arguments(self) -> tuple[tuple[str, Any], ...]:
        """Of each flat argument its path and its PartitionSpec."""
        signature, parameters = self.stock.signature, self.stock.entry.parameters
        if signature is None:
            return tuple(zip((p.path for p in parameters for _ in p.shape.leaves), self.in_specs, strict=True))
        return tuple(
            (f"argument {n}" if number is None else parameters[number].op_name, spec)
            for n, (number, spec) in enumerate(zip(signature.parameters, self.in_specs, strict=True))
        )

    @property
    def results(self) -> tuple[tuple[str, Any], ...]:
        """Of each flat result its number and its PartitionSpec."""
        return tuple((f"result {number}", spec) for number, spec in enumerate(self.out_specs))

    @cached_property
    def in_shardings(self) -> Any:
        """For `jax.jit`: the positional arguments' pytree of NamedShardings; a flat tuple if nothing was traced."""
        signature, named = self.stock.signature, self._named(self.in_specs)
        return named if signature is None else unflatten(signature.in_tree, named)[0]

    @cached_property
    def out_shardings(self) -> Any:
        """Likewise of the results."""
        signature, named = self.stock.signature, self._named(self.out_specs)
        return named if signature is None else unflatten(signature.out_tree, named)

    def _named(self, specs: Sequence[Any]) -> tuple[Any, ...]:
        from jax.sharding import NamedSharding

        return tuple(None if spec is None else NamedSharding(self.jax_mesh, spec) for spec in specs)

    def compare(self, compiled: Any = None) -> Difference:
        """XLA's own program under this plan (`before`) and ours (`after`): collectives, bytes, FLOPs, memory, time.

        `compiled`: your function as a stock `jax.jit` compiled it; by default XLA's GSPMD compiles the program with
        the shardings and the lines put in.  Raises ExecutionError where there are too few devices.
        """
        made = OptimizedProgram.of(compiled) if compiled is not None else self._compiled()
        theirs = Side(made.module, {}, cost(made.module, self.partitioned.machine), is_split=True)
        return difference(theirs, Side(self.partitioned.module, {}, self.partitioned.cost))

    def _compiled(self) -> OptimizedProgram:
        devices = tuple(self.jax_mesh.devices.flat)
        opened = (_vector(self.stock.open_parameters), _vector(self.stock.open_outputs))
        return compile_by_xla(self.stock, devices, to_parameters=opened[0], to_outputs=opened[1])

    def __str__(self) -> str:
        names = [name for name, _ in self.arguments]
        return "".join(
            (
                head_text(self.stock.name.removeprefix("jit_"), self.mesh),
                shardings_text(self.stock.signature, self.in_specs, self.out_specs, names),
                notes_text("Give the function these constraints, by line:", constraint_lines(self.constraints)),
                notes_text("Left to XLA, or not reached:", self.unsaid),
            )
        )


def _vector(said: bool | tuple[bool, ...]) -> tuple[bool, ...]:
    return said if isinstance(said, tuple) else (said,)


def export_plan(program: Module | Propagation | Partitioned, *, path: str | Path | None = None) -> ExportedPlan:
    """What a stock `jax.jit` needs to follow a program's shardings: `in_shardings`, `out_shardings` and constraints.

    Constraints are the fewest `with_sharding_constraint` lines with which XLA's own propagation gives every value the
    sharding that it has here.  `path`: write the Python there, too.  What no PartitionSpec says is left to XLA, and
    said in `unsaid`.  Raises PlanError for a program that XLA compiled already, and for an ONNX model.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> from hlosharding.sharding import MeshInfo
    >>> mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
    >>> spec = jax.sharding.PartitionSpec
    >>> module = hs.trace(lambda x, w: x @ w, mesh=mesh, in_shardings=(spec("data"), spec(None, "model")))(
    ...     jnp.ones((8, 8)), jnp.ones((8, 8))
    ... )
    >>> plan = export_plan(module)
    >>> plan.in_specs, plan.out_specs, plan.constraints
    ((P('data',), P(None, 'model')), (P('data', 'model'),), ())
    """
    program = getattr(program, "partitioned", program)
    partitioned = program if isinstance(program, Partitioned) else partition(program)
    wanted = WantedShardings.of(partitioned)
    if wanted.source.tensors:
        remedy = "hs.write_onnx_shardings puts a plan into the model"
        raise PlanError("an ONNX model is no function that JAX calls", remedy=remedy)
    mesh = wanted.source.mesh or mesh_of_primes(partitioned.num_partitions)
    ins = _edges(wanted.source.entry.parameters, wanted.inputs, mesh)
    outs = _edges((wanted.source.entry.root,), wanted.outputs, mesh)
    inputs, outputs = _said(wanted.inputs, ins), _said(wanted.outputs, outs)
    found = constraints(wanted, inputs, outputs, mesh)
    exported = ExportedPlan(
        partitioned,
        mesh,
        _by_argument(wanted.source.signature, ins),
        tuple(None if isinstance(spec, str) else spec for spec in outs),
        found.lines,
        (*(text for text in (*ins, *outs) if isinstance(text, str)), *found.unsaid),
        wanted.stock(inputs, outputs, values_of(found.lines)),
    )
    if path is not None:
        write_whole(path, str(exported))
    return exported


def mesh_of_primes(count: int) -> MeshInfo:
    """Axes for a program without names: as fine as they can be, so that they say what can be said."""
    factors = prime_factors(count) or [1]
    return MeshInfo([f"axis{number}" for number in range(len(factors))], factors)


def _edges(holders: Sequence[Instruction], shardings: Leaves, mesh: MeshInfo) -> list[Any]:
    """Of each argument, or result, the PartitionSpec, or a text: why it has none."""
    arrays = [(inst, shape.dims) for inst in holders for shape in inst.shape.leaves]
    both = zip(arrays, shardings, strict=True)
    return [_edge(inst.path, sharding, dims, mesh) for (inst, dims), sharding in both]


def _edge(name: str, sharding: HloSharding | None, dims: tuple[int, ...], mesh: MeshInfo) -> Any:
    assert sharding is not None, "the partitioner shards the whole boundary"
    uneven = uneven_dims(sharding, dims)
    if uneven:
        return f"{name}: dim {uneven[0]} of {list(dims)} is not cut into equal pieces, which jax.jit refuses"
    said = spec_of(sharding, mesh)
    return f"{name}: {said}" if isinstance(said, str) else said


def _by_argument(signature: FunctionBoundary | None, specs: Sequence[Any]) -> tuple[Any, ...]:
    """Of each flat argument of the function; of one that was dropped, and of one without a spec, None."""
    said = [None if isinstance(spec, str) else spec for spec in specs]
    if signature is None:
        return tuple(said)
    ranks = [len(aval.shape) for aval in signature.in_avals]
    found = [None if number is None else said[number] for number in signature.parameters]
    return tuple(None if spec is None else _of_rank(spec, rank) for spec, rank in zip(found, ranks, strict=True))


def _of_rank(spec: Any, rank: int) -> Any:
    """Of a PRNG key, whose numbers have a dim more than it has."""
    return type(spec)(*spec.partitions[:rank]) if len(spec.partitions) > rank else spec


def _said(shardings: Leaves, specs: Sequence[Any]) -> Leaves:
    return tuple(None if isinstance(spec, str) else s for s, spec in zip(shardings, specs, strict=True))
