"""If, Loop and Scan as JAX's own control flow; what is decided while tracing is not traced.

Floor: onnx.  A graph inside a node is a function of arrays here; numpy arrays are known values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlosharding.errors import HloShardingError, LoadError
from hlosharding.onnx.operators.table import MustBeKnown, operator
from hlosharding.onnx.values import Entry, NeedsInput


class Subgraph(Protocol):
    """A graph inside a node."""

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """What it gives, as arrays."""
        ...

    def entries(self, *arguments: Any) -> tuple[Entry, ...]:
        """The same with all that is known of it."""
        ...


_Body = Callable[..., tuple[Any, ...]]
"""What a loop does in a trip."""
_UNROLLED = 1000
"""Trips up to which a loop that JAX cannot roll is traced trip by trip."""


@operator("If", 25, known="cond")
def _if(cond: Any, *, then_branch: Subgraph, else_branch: Subgraph) -> Any:
    if isinstance(cond, np.ndarray):
        return (then_branch if bool(cond.reshape(())) else else_branch).entries()
    try:
        return lax.cond(jnp.reshape(cond, ()), lambda: _arrays(then_branch()), lambda: _arrays(else_branch()))
    # By its type it is one of those below, but no fault of a branch: who loads the model binds the input by value.
    except NeedsInput:
        raise
    except (HloShardingError, TypeError, ValueError, IndexError) as error:
        # A branch that is never taken need not make sense for these sizes, or its results may have other shapes.
        raise MustBeKnown("cond") from error


def _arrays(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(jax.tree.map(jnp.asarray, value) for value in values)


@operator("Loop", 25, known="max_trips cond carried")
def _loop(max_trips: Any = None, cond: Any = None, *carried: Any, body: Subgraph, node: Any) -> Any:
    """ONNX's general loop: `body` takes the trip's number, the condition and what is carried, and gives the next
    condition, what is carried, and elements of arrays that grow by one a trip."""
    if isinstance(cond, np.ndarray) and not cond.reshape(()):
        max_trips = np.zeros((), np.int64)
    trip = body if cond is not None or max_trips is None else _going_on(body)
    grows = len(node.outputs) > len(carried)
    if not any(isinstance(each, list) for each in carried):
        try:
            return _rolled(max_trips, cond, _arrays(carried), trip, grows)
        except NeedsInput:
            raise
        except (HloShardingError, TypeError, ValueError, IndexError) as error:
            # Shapes may hang on the number of the trip: traced trip by trip, it is known.
            if not isinstance(max_trips, np.ndarray):
                raise MustBeKnown("max_trips") from error
    return _unrolled(max_trips, cond, carried, trip)


def _going_on(body: _Body) -> _Body:
    # Without a condition of its own a loop ignores the body's, says ONNX; without trips as well it would never end.
    return lambda *arguments: (np.ones((), bool), *body(*arguments)[1:])


def _rolled(max_trips: Any, cond: Any, carried: tuple[Any, ...], body: _Body, grows: bool) -> Any:
    is_counted = _is_counted(cond, carried, body)
    if is_counted and isinstance(max_trips, np.ndarray):
        return _counted(int(max_trips.reshape(())), carried, body)
    if grows:
        if not isinstance(max_trips, np.ndarray):
            raise MustBeKnown("max_trips" if is_counted else "cond")
        raise LoadError("a loop that ends early gives arrays whose sizes are known only when it runs")
    return _while(max_trips, cond, carried, body)


def _is_counted(cond: Any, carried: tuple[Any, ...], body: _Body) -> bool:
    """Does only the number of trips end the loop?

    Raises TypeError where what is carried changes its shape.
    """
    # What `eval_shape` gives are shapes alone.  Whether the condition is known is seen inside the trip.
    found: list[Any] = []

    def trip(number: Any, *state: Any) -> Any:
        # A known condition goes in as a known one: a body that hands it on gives a known one, too.
        given = np.ones((), bool) if cond is None or isinstance(cond, np.ndarray) else cond
        outputs = body(number, given, *state)
        found.append(outputs[0])
        return _arrays(outputs)

    shapes = jax.eval_shape(trip, jnp.zeros((), jnp.int64), *carried)
    for before, after in zip(carried, shapes[1:], strict=False):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise TypeError(f"what is carried is {before.dtype}{list(before.shape)} before a trip, "
                            f"{after.dtype}{list(after.shape)} after it")  # fmt: skip
    goes_on = isinstance(found[0], np.ndarray) and bool(found[0].reshape(()))
    return goes_on and (cond is None or isinstance(cond, np.ndarray))


def _counted(trips: int, carried: tuple[Any, ...], body: _Body) -> Any:
    count = len(carried)

    def trip(state: tuple[Any, ...], number: Any) -> tuple[Any, Any]:
        outputs = _arrays(body(number, np.ones((), bool), *state)[1:])
        return outputs[:count], outputs[count:]

    last, grown = lax.scan(trip, carried, jnp.arange(trips, dtype=jnp.int64))
    return (*last, *grown)


def _while(max_trips: Any, cond: Any, carried: tuple[Any, ...], body: _Body) -> Any:
    limit = None if max_trips is None else jnp.reshape(max_trips, ()).astype(jnp.int64)
    first = jnp.ones((), bool) if cond is None else jnp.reshape(cond, ())

    def goes_on(state: tuple[Any, ...]) -> Any:
        number, may, _ = state
        return may if limit is None else jnp.logical_and(may, number < limit)

    def trip(state: tuple[Any, ...]) -> tuple[Any, ...]:
        number, may, values = state
        outputs = _arrays(body(number, may, *values))
        return number + 1, jnp.reshape(outputs[0], ()), outputs[1:]

    return lax.while_loop(goes_on, trip, (jnp.zeros((), jnp.int64), first, carried))[2]


def _unrolled(max_trips: Any, cond: Any, carried: Sequence[Any], body: _Body) -> Any:
    for name, given in (("max_trips", max_trips), ("cond", cond)):
        if not isinstance(given, np.ndarray | None):
            raise MustBeKnown(name)
    may, state, grown = np.ones((), bool) if cond is None else cond, tuple(carried), []
    for number in itertools.count() if max_trips is None else range(int(max_trips.reshape(()))):
        if not isinstance(may, np.ndarray):
            raise LoadError("a loop over sequences, or over growing arrays, ends when values of the run say so")
        if not may.reshape(()):
            break
        if number == _UNROLLED:
            raise LoadError(f"a loop over sequences, or over growing arrays, of more than {_UNROLLED} trips")
        outputs = body(np.array(number, np.int64), may, *state)
        may, state = outputs[0], outputs[1 : 1 + len(state)]
        grown.append(outputs[1 + len(state) :])
    return (*state, *(jnp.stack(_arrays(each)) for each in zip(*grown, strict=True)))


@operator("Scan", 25)
def _scan(
    *inputs: Any, body: Subgraph, num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None, scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None, scan_output_directions: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    count = len(inputs) - num_scan_inputs
    in_axes, backwards = scan_input_axes or [0] * num_scan_inputs, scan_input_directions or [0] * num_scan_inputs
    scanned = tuple(
        jnp.flip(jnp.moveaxis(x, axis, 0), 0) if is_backward else jnp.moveaxis(x, axis, 0)
        for x, axis, is_backward in zip(inputs[count:], in_axes, backwards, strict=True)
    )

    def step(state: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, Any]:
        outputs = _arrays(body(*state, *now))
        return outputs[:count], outputs[count:]

    last, grown = lax.scan(step, _arrays(inputs[:count]), scanned)
    out_axes, reversals = scan_output_axes or [0] * len(grown), scan_output_directions or [0] * len(grown)
    turned = (
        jnp.moveaxis(jnp.flip(x, 0) if is_backward else x, 0, axis)
        for x, axis, is_backward in zip(grown, out_axes, reversals, strict=True)
    )
    return (*last, *turned)


@operator("SequenceMap", 17, known="sequence more")
def _sequence_map(sequence: list[Any], *more: Any, body: Subgraph) -> Any:
    rows = [
        body(each, *(other[n] if isinstance(other, list) else other for other in more))
        for n, each in enumerate(sequence)
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))
