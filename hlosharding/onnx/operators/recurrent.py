"""Recurrent layers: one `lax.scan` over time per direction; what the inputs contribute is one product before it.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.activations import Function, activation
from hlosharding.onnx.operators.quantization import dynamically_quantized
from hlosharding.onnx.operators.quantized_products import exact_product
from hlosharding.onnx.operators.table import MICROSOFT, operator

Product = Callable[[Any], Any]
"""With a weight: [..., in] to [..., gates * hidden]."""
Floats = Sequence[float] | None
Strings = Sequence[str] | None


@dataclass(frozen=True)
class _Layer:
    """One recurrent node: its sequence, with time first, and its attributes."""

    x: Any
    """[time, batch, features]"""
    lengths: Any
    layout: int
    direction: str
    functions: tuple[Function, ...]
    """Of all directions."""
    clip: float

    @classmethod
    def of(
        cls, x: Any, lengths: Any, *, layout: int = 0, direction: str, activations: Strings, default: str,
        alphas: Floats, betas: Floats, clip: float,
    ) -> _Layer:  # fmt: skip
        if direction not in ("forward", "reverse", "bidirectional"):
            raise LoadError(f"direction {direction!r} is not handled")
        names = activations or default.split() * (2 if direction == "bidirectional" else 1)
        given = iter(alphas or ()), iter(betas or ())
        functions = tuple(activation(name, *given) for name in names)
        return cls(jnp.swapaxes(x, 0, 1) if layout else x, lengths, layout, direction, functions, clip)

    @property
    def reverse(self) -> tuple[bool, ...]:
        """Per direction: does it run from the end?"""
        return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[self.direction]

    def functions_of(self, number: int) -> tuple[Function, ...]:
        """Those of one direction, on clipped arguments."""
        each = len(self.functions) // len(self.reverse)
        return tuple(partial(self._clipped, f) for f in self.functions[number * each : (number + 1) * each])

    def _clipped(self, function: Function, x: Any) -> Any:
        out = function(jnp.clip(x, -self.clip, self.clip) if self.clip else x)
        return out.astype(x.dtype)

    def initial(self, state: Any, number: int, hidden: int) -> Any:
        """The state [batch, hidden] that a direction starts with; zero where none is given."""
        if state is None:
            return jnp.zeros((self.x.shape[1], hidden), self.x.dtype)
        return state[:, number] if self.layout else state[number]

    def run(self, number: int, fixed: Any, start: tuple[Any, ...], step: Callable[..., tuple[Any, ...]]) -> Any:
        """All hidden states [time, batch, hidden] of one direction, and the last states.

        `fixed`: what the inputs contribute.  Beyond a sequence's length states stay, and outputs are zero.
        """

        def body(states: tuple[Any, ...], at: tuple[Any, Any]) -> tuple[tuple[Any, ...], Any]:
            time, contribution = at
            new = step(states, contribution)
            if self.lengths is None:
                return new, new[0]
            lasts = (time < self.lengths)[:, None]
            kept = tuple(jnp.where(lasts, after, before) for after, before in zip(new, states, strict=True))
            return kept, jnp.where(lasts, new[0], 0)

        times = jnp.arange(self.x.shape[0], dtype=jnp.int32)
        # From the end a shorter sequence keeps its first state until its last element comes: nothing need be turned.
        return lax.scan(body, start, (times, fixed), reverse=self.reverse[number])

    def join(self, runs: Sequence[tuple[tuple[Any, ...], Any]]) -> tuple[Any, ...]:
        """The node's outputs: all hidden states, and each last state."""
        states, outputs = zip(*runs, strict=True)
        lasts = [jnp.stack(each, 1 if self.layout else 0) for each in zip(*states, strict=True)]
        everything = jnp.stack(outputs, 1)
        return jnp.transpose(everything, (2, 0, 1, 3)) if self.layout else everything, *lasts


def _product(weights: Any, number: int) -> Product:
    """With the weight [gates * hidden, in] of one direction."""
    return lambda x: jnp.matmul(x, weights[number].T)


def _biases(b: Any, number: int) -> tuple[Any, Any]:
    """Of the inputs, and of the recurrence."""
    if b is None:
        return 0, 0
    of_inputs, of_recurrence = jnp.split(b[number], 2)
    return of_inputs, of_recurrence


@operator("RNN", 22)
def _rnn(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None,
    *, activation_alpha: Floats = None, activation_beta: Floats = None, activations: Strings = None, clip: float = 0,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    layer = _Layer.of(
        x, sequence_lens, layout=layout, direction=direction, activations=activations, default="Tanh",
        alphas=activation_alpha, betas=activation_beta, clip=clip,
    )  # fmt: skip
    return layer.join([_rnn_run(layer, n, w, r, b, initial_h) for n in range(len(layer.reverse))])


def _rnn_run(layer: _Layer, number: int, w: Any, r: Any, b: Any, initial_h: Any) -> Any:
    recur = _product(r, number)
    fixed = _product(w, number)(layer.x) + sum(_biases(b, number))
    [f] = layer.functions_of(number)
    start = (layer.initial(initial_h, number, r.shape[-1]),)
    return layer.run(number, fixed, start, lambda states, given: (f(given + recur(states[0])),))


@operator("GRU", 22)
def _gru(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None,
    *, activation_alpha: Floats = None, activation_beta: Floats = None, activations: Strings = None, clip: float = 0,
    direction: str = "forward", hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    layer = _Layer.of(
        x, sequence_lens, layout=layout, direction=direction, activations=activations, default="Sigmoid Tanh",
        alphas=activation_alpha, betas=activation_beta, clip=clip,
    )  # fmt: skip
    runs = [_gru_run(layer, n, w, r, b, initial_h, bool(linear_before_reset)) for n in range(len(layer.reverse))]
    return layer.join(runs)


def _gru_run(layer: _Layer, number: int, w: Any, r: Any, b: Any, initial_h: Any, linear: bool) -> Any:
    hidden = r.shape[-1]
    f, g = layer.functions_of(number)
    gates, candidate = r[number, : 2 * hidden].T, r[number, 2 * hidden :].T
    of_inputs, of_states = _biases(b, number)
    bias, late = (0, 0) if b is None else (of_states[: 2 * hidden], of_states[2 * hidden :])
    fixed = _product(w, number)(layer.x) + of_inputs

    def step(states: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
        [h] = states
        z, reset = jnp.split(f(given[:, : 2 * hidden] + h @ gates + bias), 2, -1)
        more = reset * (h @ candidate + late) if linear else (reset * h) @ candidate + late
        new = g(given[:, 2 * hidden :] + more)
        return ((1 - z) * new + z * h,)

    return layer.run(number, fixed, (layer.initial(initial_h, number, hidden),), step)


@operator("LSTM", 22)
def _lstm(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, initial_c: Any = None,
    p: Any = None,
    *, activation_alpha: Floats = None, activation_beta: Floats = None, activations: Strings = None, clip: float = 0,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    layer = _Layer.of(
        x, sequence_lens, layout=layout, direction=direction, activations=activations, default="Sigmoid Tanh Tanh",
        alphas=activation_alpha, betas=activation_beta, clip=clip,
    )  # fmt: skip
    runs = [
        _lstm_run(layer, n, _product(w, n), _product(r, n), b, initial_h, initial_c, p, r.shape[-1], bool(input_forget))
        for n in range(len(layer.reverse))
    ]
    return layer.join(runs)


def _lstm_run(
    layer: _Layer, number: int, enter: Product, recur: Product, b: Any, initial_h: Any, initial_c: Any, p: Any,
    hidden: int, coupled: bool,
) -> Any:  # fmt: skip
    """`coupled`: the forget gate is what the input gate leaves."""
    f, g, _ = layer.functions_of(number)
    # ONNX Runtime clips what enters the gates, and not the cell on its way out.
    h = layer.functions[3 * number + 2]
    fixed = enter(layer.x) + sum(_biases(b, number))
    peep_i, peep_o, peep_f = (0, 0, 0) if p is None else jnp.split(p[number], 3)

    def step(states: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
        hidden_state, cell = states
        i, o, forget, c = jnp.split(given + recur(hidden_state), 4, -1)
        i = f(i + peep_i * cell)
        forget = 1 - i if coupled else f(forget + peep_f * cell)
        new = forget * cell + i * g(c)
        o = f(o + peep_o * new)
        return o * h(new), new

    start = layer.initial(initial_h, number, hidden), layer.initial(initial_c, number, hidden)
    return layer.run(number, fixed, start, step)


@operator("DynamicQuantizeLSTM", 1, domain=MICROSOFT)
def _dynamic_quantize_lstm(
    x: Any, w: Any, r: Any, b: Any = None, sequence_lens: Any = None, initial_h: Any = None, initial_c: Any = None,
    p: Any = None, w_scale: Any = None, w_zero: Any = None, r_scale: Any = None, r_zero: Any = None,
    *, activation_alpha: Floats = None, activation_beta: Floats = None, activations: Strings = None, clip: float = 0,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0,
) -> Any:  # fmt: skip
    layer = _Layer.of(
        x, sequence_lens, direction=direction, activations=activations, default="Sigmoid Tanh Tanh",
        alphas=activation_alpha, betas=activation_beta, clip=clip,
    )  # fmt: skip
    runs = [
        _lstm_run(
            layer, n, _small_product(w[n], w_scale[n], w_zero[n]), _small_product(r[n], r_scale[n], r_zero[n]), b,
            initial_h, initial_c, p, r.shape[1], bool(input_forget),
        )
        for n in range(len(layer.reverse))
    ]  # fmt: skip
    return layer.join(runs)


def _small_product(weight: Any, scale: Any, zero: Any) -> Product:
    """With a weight of 8 bits [in, gates * hidden]; the other side is brought to 8 bits each time."""

    def product(x: Any) -> Any:
        small, x_scale, x_zero = dynamically_quantized(x)
        return exact_product(small, weight, x_zero, zero).astype(x.dtype) * (x_scale * scale)

    return product
