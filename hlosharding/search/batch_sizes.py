"""A step for batches of several sizes.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hlosharding.errors import ScheduleError, is_count
from hlosharding.frontends import trace
from hlosharding.ir import Module
from hlosharding.schedule import argument_numbers
from hlosharding.search.batch_arguments import find_batch
from hlosharding.search.planner import Planner
from hlosharding.search.strategies import Strategy


class BatchSizes:
    """The planners of one step, each traced when it is asked for.

    A traced Module has one size; a function is traced with arguments whose first dim grows with the batch.

    >>> import jax.numpy as jnp
    >>> sizes = BatchSizes(lambda w, x: x @ w, (jnp.ones((4, 4)), jnp.ones((8, 4))), ["x"])
    >>> sizes.given, [str(p.shape) for p in sizes.planner(32).module.entry.parameters]
    (8, ['f32[4,4]', 'f32[32,4]'])
    """

    def __init__(
        self,
        program: Module | Callable[..., Any],
        arguments: Sequence[Any],
        batch: Sequence[str | int] | None = None,
        donate: Sequence[str | int] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        donated = donate if isinstance(program, Module) else list(_leaves(arguments, donate))
        module = program if isinstance(program, Module) else trace(program)(*arguments)
        batch = find_batch(module) if batch is None else batch
        self._program, self._arguments, self._named = program, arguments, (batch, donated, strategies)
        self.donates = bool(donated)
        first = Planner(module, *self._named)
        self.given = _batch_size(module, batch)
        self._planners = {self.given: first}

    def __reduce__(self) -> Any:
        # A function need not be known elsewhere: what was traced is enough.  (Graphs are too deep for pickles.)
        modules = {size: each.module for size, each in self._planners.items()}
        written = {n: (m.to_hlo_proto(), m.mesh, m.partitionings, m.num_partitions) for n, m in modules.items()}
        return _rebuild, (written, self.given, self._named)

    @property
    def is_traced(self) -> bool:
        """Was the program given as a trace, of one size?"""
        return isinstance(self._program, Module)

    @property
    def traced(self) -> list[int]:
        """Sizes of which there is a planner."""
        return sorted(self._planners)

    def planner(self, size: int) -> Planner:
        """For batches of `size` examples.  Raises ScheduleError for another size of a program that was traced."""
        if size not in self._planners:
            if isinstance(self._program, Module):
                raise ScheduleError(
                    f"the program was traced for a batch of {self.given}, not of {size}",
                    remedy="give the function and its arguments in place of its trace",
                )
            if not is_count(size):
                raise ScheduleError(f"a batch of {size} holds no example", remedy="take sizes of one or more")
            self._planners[size] = Planner(trace(self._program)(*self._resize_arguments(size)), *self._named)
        return self._planners[size]

    def _resize_arguments(self, size: int) -> Sequence[Any]:
        import jax

        leaves, tree = jax.tree.flatten(tuple(self._arguments))
        for number in self._planners[self.given].numbers:
            rows, *others = leaves[number].shape
            # The first dim of one may be a multiple of that of another.
            leaves[number] = jax.ShapeDtypeStruct((rows * size // self.given, *others), leaves[number].dtype)
        return jax.tree.unflatten(tree, leaves)


def _leaves(arguments: Sequence[Any], names: Iterable[str | int]) -> Iterator[str | int]:
    """Numbers of a function's arguments, as `jax.jit` counts them, as those of their leaves.  Raises ScheduleError."""
    import jax

    sizes = [len(jax.tree.leaves(argument)) for argument in arguments]
    for name in names:
        if isinstance(name, str):
            yield name
            continue
        if not is_count(name, 0) or name >= len(sizes):
            raise ScheduleError(f"no argument {name}", remedy=f"there are {len(sizes)}, counted from 0")
        yield from range(sum(sizes[:name]), sum(sizes[: name + 1]))


def _rebuild(written: Mapping[int, tuple[Any, ...]], given: int, named: Any) -> BatchSizes:
    """Of these sizes alone."""
    modules: dict[int, Module] = {}
    for size, (proto, mesh, partitionings, num_partitions) in written.items():
        modules[size] = module = Module.from_proto(proto)
        module.mesh, module.partitionings, module.num_partitions = mesh, partitionings, num_partitions
    made = BatchSizes(modules[given], (), *named)
    made._planners.update({size: Planner(module, *named) for size, module in modules.items() if size != given})
    return made


def _batch_size(module: Module, batch: Sequence[str | int]) -> int:
    """The first dim of the first batch argument.  Raises ScheduleError where it has none, or no examples."""
    parameters = module.entry.parameters
    for number in argument_numbers(module, batch):
        if any(parameters[number].shape.dims[:1]):
            return parameters[number].shape.dims[0]
    what = f"no array of {', '.join(map(str, batch))} has a first dim of examples"
    raise ScheduleError(what, remedy="name arguments with a batch")
