"""What a user gave with `custom_partitioning`: asked for what one device computes, in shardings that are known by then.

Floor: frontends.  Such a function is traced as a marked call of what it computes (`ir.PARTITIONING_MARK` names its
place in `Module.partitionings`).  Propagation asks here for his results' shardings, the partitioner for his program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hlosharding.errors import PartitionError, ShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.sharding import HloSharding

Shardings = tuple[HloSharding, ...]


@dataclass(frozen=True, slots=True)
class PerDevice:
    """What the user's `partition` made of a call."""

    module: Module
    """The call as a function of global arrays: one `shard_map` of the user's function of tiles."""
    operands: Shardings
    """The shardings that he wants, which need not be those he was offered."""
    results: Shardings


@dataclass(frozen=True, slots=True, eq=False)
class CustomPartitioning:
    """The callbacks of one function; the flat arrays of its calls are ordered as the trees say."""

    mesh: Any
    partition: Any
    infer_sharding_from_operands: Any
    in_tree: Any
    out_tree: Any
    static_args: Sequence[Any]
    trace: Callable[..., Callable[..., Module]]
    """How a function of arrays becomes a module: `hs.trace`."""
    _made: dict[Any, PerDevice | None] = field(default_factory=dict[Any, Any])

    def infer_results(self, inst: Instruction, operands: Sequence[HloSharding]) -> Shardings | None:
        """Shardings of the results as the user infers them; None where he does not, or mesh axes cannot say it."""
        structs = self._structs([o.shape for o in inst.operands], operands)
        if self.infer_sharding_from_operands is None or structs is None:
            return None
        import jax

        plain = [jax.ShapeDtypeStruct(s.dims, s.dtype) for s in inst.shape.leaves]
        with _said_of(inst, "infer_sharding_from_operands"):
            asked = self.in_tree.unflatten(structs), self.out_tree.unflatten(plain)
            found = self.infer_sharding_from_operands(*self.static_args, self.mesh, *asked)
            return _read(self.out_tree, found, [s.rank for s in inst.shape.leaves])

    def per_device(self, inst: Instruction, operands: Sequence[HloSharding], results: Shardings) -> PerDevice | None:
        """What each device computes when offered these shardings.

        None where `partition` cannot be asked or followed: no mesh or one device, shardings that mesh axes cannot say,
        uneven tiles (he would take padding for data), calls back into Python.  Raises PartitionError where it fails,
        or where what it returns does not fit.
        """
        key = (tuple(operands), results, *(str(o.shape) for o in inst.operands))
        if key not in self._made:
            self._made[key] = self._asked(inst, operands, results)
        return self._made[key]

    def _asked(self, inst: Instruction, operands: Sequence[HloSharding], results: Shardings) -> PerDevice | None:
        shapes = [o.shape for o in inst.operands]
        given, wanted = self._structs(shapes, operands), self._structs(inst.shape.leaves, results)
        if given is None or wanted is None:
            return None
        with _said_of(inst, "partition"):
            mesh, function, out, arguments = self.partition(
                *self.static_args, self.mesh, self.in_tree.unflatten(given), self.out_tree.unflatten(wanted)
            )
            taken = _read(self.in_tree, arguments, [s.rank for s in shapes])
            made = _read(self.out_tree, out, [s.rank for s in inst.shape.leaves])
        if not _divide(shapes, taken) or not _divide(inst.shape.leaves, made):
            return None
        with _said_of(inst, "the function that partition returned"):
            module = self._traced(mesh, function, given, taken, made)
        _check_results(inst, module)
        return None if module.callbacks else PerDevice(module, taken, made)

    def _structs(self, shapes: Sequence[Any], shardings: Sequence[HloSharding]) -> list[Any] | None:
        import jax

        if self.mesh is None or self.mesh.size == 1:  # as in JAX, which asks nothing on one device
            return None
        try:
            named = [s.to_jax(self.mesh) for s in shardings]
        except ShardingError:
            return None
        return [jax.ShapeDtypeStruct(s.dims, s.dtype, sharding=n) for s, n in zip(shapes, named, strict=True)]

    def _traced(self, mesh: Any, function: Any, given: list[Any], taken: Shardings, made: Shardings) -> Module:
        import jax

        def flat(*tiles: Any) -> tuple[Any, ...]:
            return tuple(jax.tree.leaves(function(*self.in_tree.unflatten(tiles))))

        specs = [tuple(s.to_jax(mesh).spec for s in side) for side in (taken, made)]
        local = jax.shard_map(flat, mesh=mesh, in_specs=specs[0], out_specs=specs[1], check_vma=False)
        shapes = [jax.ShapeDtypeStruct(g.shape, g.dtype) for g in given]
        return self.trace(local, mesh=mesh, in_shardings=taken, out_shardings=made)(*shapes)


@contextmanager
def _said_of(inst: Instruction, what: str) -> Iterator[None]:
    """An error of the user's own code names the call that led there."""
    try:
        yield
    except PartitionError:
        raise
    except Exception as error:
        said = f"{what} of a custom_partitioning fails: {type(error).__name__}: {error}"
        raise PartitionError(said, where=inst.where) from error


def _read(tree: Any, shardings: Any, ranks: Sequence[int]) -> Shardings:
    flat = tree.flatten_up_to(shardings)
    return tuple(HloSharding.from_jax(_of_rank(s, rank), rank).meaning for s, rank in zip(flat, ranks, strict=True))


def _of_rank(sharding: Any, rank: int) -> Any:
    """Without entries of its spec for dims that the array lacks, where those are not split: JAX takes such here."""
    spec = getattr(sharding, "spec", None)
    if spec is None or len(spec) <= rank or any(entry not in (None, ()) for entry in spec[rank:]):
        return sharding
    return sharding.update(spec=type(spec)(*spec[:rank]))


def _divide(shapes: Sequence[Any], shardings: Shardings) -> bool:
    return all(
        size % sharding.num_tiles_along(dim) == 0
        for shape, sharding in zip(shapes, shardings, strict=True)
        if sharding.is_tiled()
        for dim, size in enumerate(shape.dims)
    )


def _check_results(inst: Instruction, module: Module) -> None:
    made, wanted = (list(map(str, i.shape.leaves)) for i in (module.entry.root, inst))
    if made != wanted:
        raise PartitionError(
            f"Mismatch in result shapes. The function that partition returned makes {', '.join(made)}; the whole is"
            f" {', '.join(wanted)}",
            where=inst.where,
            remedy="return tiles of the shardings that partition returned",
        )


def custom_partitionings(
    found: Sequence[dict[str, Any]], mesh: Any, trace: Callable[..., Callable[..., Module]]
) -> tuple[CustomPartitioning, ...]:
    """Of what lowering noted of each marked call; `trace` is how the user's functions of tiles become modules."""
    taken = "partition", "infer_sharding_from_operands", "in_tree", "out_tree", "static_args"
    said = ({name: given[name] for name in taken} for given in found)
    return tuple(CustomPartitioning(mesh=mesh, trace=trace, **each) for each in said)
