"""What a training step updates: which result takes the place of which argument, and what the update alone reads.

Floor: search.  Read off the program, as `jax.jit` hands it over: no names of a model's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush

from hlosharding.ir import ELEMENTWISE, Instruction, Module

_PASSES_ON = ELEMENTWISE | {"bitcast", "reshape", "transpose"}


def find_updated(module: Module) -> dict[Instruction, Instruction]:
    """By result the parameter of its shape that it is computed from element by element, where one alone is left.

    Of Adam's results the new moments come from their moment each, and the new weights from both and the weights.

    >>> import jax.numpy as jnp, hlosharding as hs
    >>> step = hs.trace(lambda w, m, x: (w - (0.9 * m + x.sum(0)), 0.9 * m + x.sum(0)))(
    ...     jnp.ones(4), jnp.ones(4), jnp.ones((8, 4))
    ... )
    >>> [parameter.op_name for parameter in find_updated(step).values()]
    ['w', 'm']
    """
    root = module.entry.root
    results = root.operands if root.opcode == "tuple" else (root,)
    sources = {result: set(_sources(result)) for result in results if result.shape.is_array}
    readers, places = defaultdict[Instruction, list[Instruction]](list), {r: n for n, r in enumerate(sources)}
    for result, own in sources.items():
        for parameter in own:
            readers[parameter].append(result)
    found: dict[Instruction, Instruction] = {}
    single = [(places[result], result) for result, own in sources.items() if len(own) == 1]
    # A heap, for results by the thousand: to look for the first one in all of them again and again was quadratic.
    while single:  # the first of them
        _, result = heappop(single)
        # Another result may have taken it since, and none is left.  A list, as it is discarded from these, too, below.
        for parameter in list(sources[result]):
            found[result] = parameter
            for other in readers[parameter]:
                sources[other].discard(parameter)
                if len(sources[other]) == 1:
                    heappush(single, (places[other], other))
    return {result: found[result] for result in results if result in found}


def lay_updated_alike(module: Module) -> None:
    """Let results lie as the arguments that they update, where nothing else is said of them: in place."""
    updated = {result.id: module.sharding(parameter) for result, parameter in find_updated(module).items()}
    module.shardings = {n: sharding for n, sharding in updated.items() if sharding is not None} | module.shardings


def _sources(result: Instruction) -> Iterator[Instruction]:
    """Parameters of its shape, by ops on elements alone."""
    seen, waiting = set[Instruction](), [result]
    while waiting:
        inst = waiting.pop()
        if inst in seen or inst.shape.dims != result.shape.dims:
            continue
        seen.add(inst)
        # What is given back as it came updates nothing.
        if inst.opcode == "parameter" and inst.shape.is_floating and inst is not result:
            yield inst
        if inst.opcode in ELEMENTWISE:
            waiting += inst.operands


def find_only_updated(module: Module) -> frozenset[int]:
    """Numbers of the arguments that no loss depends on: an optimizer's state, as JAX's names of ops tell.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> def step(w, m, x):
    ...     m = 0.9 * m + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
    ...     return w - m, m
    >>> sorted(find_only_updated(hs.trace(step)(*map(jnp.ones, [(4, 2), (4, 2), (8, 4)]))))
    [1]
    """
    read = {parameter for parameter in module.entry.parameters if _is_differentiated(parameter)}
    updated = find_updated(module).values()
    return frozenset(parameter.parameter_number for parameter in updated if parameter not in read)


def _is_differentiated(value: Instruction) -> bool:
    """Does a function that JAX differentiated read it?"""
    waiting = [value]
    while waiting:
        read = waiting.pop()
        if any("jvp(" in user.op_name for user in read.users):
            return True
        waiting += (user for user in read.users if user.opcode in _PASSES_ON and user.operands == (read,))
    return False
