"""Regions of a traced function that may need no communication: marked by a scope, which op names keep.

Floor: frontends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_SCOPE, _WITH_GRADIENTS = "hlosharding.no_communication", "hlosharding.no_communication_nor_gradients"
_OF_A_GRADIENT = "transpose("
"""How JAX names the backward pass."""


@contextmanager
def no_communication(*, gradients: bool = False) -> Iterator[None]:
    """Ops in this region of a traced function, or in the function that it decorates, may need no collective.

    What breaks it is a PartitionError when the program is partitioned (`hs.partition`, `hs.jit`, the command line): the
    collective, its line and bytes, and the annotations on both sides.  Whatever makes the pieces of a value in the
    region fit is meant: to gather an operand of its ops, to add up their partial results, also where that happens
    later; collectives that the user wrote himself, too.  Values may be laid out anew before the region, and after.
    Where the cheapest program would move data in the region only to spread work, the one that follows propagation alone
    (`PartitionOptions(only_propagated=True)`) is taken.

    It goes through jit, vmap, scan and checkpoint.  Of `jax.grad` around the region only the forward pass is meant, for
    gradients of weights are added up over the batch; `gradients=True` means the backward pass, too.  In a plain
    `jax.jit` it has no effect.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> @no_communication()
    ... def norms(x):
    ...     return (x * x).sum(1)
    >>> rows, columns = "{devices=[2,1]<=[2]}", "{devices=[1,2]<=[2]}"
    >>> hs.partition(hs.trace(norms, in_shardings=rows)(jnp.ones((4, 8)))).collectives
    []
    >>> hs.partition(hs.trace(norms, in_shardings=columns)(jnp.ones((4, 8))))
    Traceback (most recent call last):
    ...
    hlosharding.errors.PartitionError: 1 collective, 16 bytes, where hs.no_communication() allows none:...
    """
    import jax

    with jax.named_scope(_WITH_GRADIENTS if gradients else _SCOPE):
        yield


def may_not_communicate(op_name: str) -> bool:
    """Does an op of that name lie in such a region?

    >>> may_not_communicate("jit(f)/jvp(hlosharding.no_communication)/dot")
    True
    >>> may_not_communicate("jit(f)/transpose(jvp(hlosharding.no_communication))/dot")
    False
    """
    before, scope, after = op_name.partition(_SCOPE)
    return bool(scope) and (_OF_A_GRADIENT not in before or after.startswith(_WITH_GRADIENTS.removeprefix(_SCOPE)))
