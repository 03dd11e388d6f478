"""Functions that a generated program may need and JAX has not: their very text goes into the program.

Floor: executor.  They know JAX alone, so that a program runs where nothing of ours is installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

IMPORTS = "from collections.abc import Callable\nfrom typing import Any"
"""What the functions' text asks for, beside `import jax`."""


def compile_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` of a function whose calls stay calls on CPU devices; elsewhere XLA inlines them, as it does by default.

    A repeated layer then costs its compile time once.
    """
    import jax
    from jax.experimental.xla_metadata import set_xla_metadata

    jitted = jax.jit(function)

    def call(*arguments: Any) -> Any:
        results = jitted(*arguments)
        device = jax.sharding.get_abstract_mesh().abstract_device
        # The mark is read by XLA's CallInliner.
        is_marked = device is not None and device.platform == "cpu"
        return set_xla_metadata(results, inlineable="false") if is_marked else results

    return call


def keeping_nan(collective: Callable[..., Any], operand: Any, axes: Any, **groups: Any) -> Any:
    """`lax.pmax` or `lax.pmin` of floats: on CPU devices XLA's all-reduce loses a NaN, so integers go in their place.

    They are in the order of the floats, with NaN where it wins.
    """
    import jax
    import jax.numpy as jnp

    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is None or device.platform != "cpu":
        return collective(operand, axes, **groups)
    wins = "max" if collective is jax.lax.pmax else "min"

    def swapped(bits: Any) -> Any:
        # Of a negative float the larger integer is the smaller number: all bits but the sign's are turned round.
        return bits ^ ((bits >> (8 * bits.dtype.itemsize - 1)) & jnp.iinfo(bits.dtype).max)

    def kept(x: Any) -> Any:
        wide = x if x.dtype.itemsize > 1 else x.astype("float32")
        bits = jax.lax.bitcast_convert_type(wide, f"int{8 * wide.dtype.itemsize}")
        nan = getattr(jnp.iinfo(bits.dtype), wins)
        found = collective(jnp.where(jnp.isnan(wide), nan, swapped(bits)), axes, **groups)
        return jax.lax.bitcast_convert_type(swapped(found), wide.dtype).astype(x.dtype)

    return jax.tree.map(kept, operand)


def attention_in_full(*operands: Any, heads: int, is_causal: bool, scale: float, has_sums: bool) -> Any:
    """What a call to cuDNN's flash attention computes, scores and all: for devices that have no cuDNN.

    `heads`: their dim in queries, keys and values; `has_sums`: the results' second one is the logarithm of the sums.
    """
    import jax.numpy as jnp

    def heads_first(x: Any) -> Any:
        return jnp.moveaxis(x, heads, 1).astype("float32")

    queries, keys, values, *rest = operands
    q, k, v = map(heads_first, (queries, keys, values))
    shared = q.shape[1] // k.shape[1]
    k, v = (jnp.repeat(x, shared, 1) for x in (k, v))
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) * scale
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -jnp.inf)
    workspace = jnp.zeros(0, "uint8")
    if not rest:
        top = jnp.max(scores, -1, keepdims=True)
        sums = top + jnp.log(jnp.sum(jnp.exp(scores - top), -1, keepdims=True))
        made = jnp.einsum("bhts,bhsd->bhtd", jnp.exp(scores - sums), v).astype(queries.dtype)
        return (made, sums[..., 0], workspace) if has_sums else (made, workspace)
    sums, given, made = rest[0][..., None], *map(heads_first, rest[1:])
    shares = jnp.exp(scores - sums)
    steps = shares * (jnp.einsum("bhtd,bhsd->bhts", given, v) - jnp.sum(given * made, -1, keepdims=True)) * scale

    def of_keys(x: Any) -> Any:
        return x.reshape(x.shape[0], -1, shared, *x.shape[2:]).sum(2)

    gradients = (
        jnp.einsum("bhts,bhsd->bhtd", steps, k),
        of_keys(jnp.einsum("bhts,bhtd->bhsd", steps, q)),
        of_keys(jnp.einsum("bhts,bhtd->bhsd", shares, given)),
    )
    return *(x.astype(queries.dtype) for x in gradients), workspace


def stablehlo(text: str, results: Any) -> Callable[..., Any]:
    """A StableHLO module as a function that may be called inside any JAX program; `results`: shapes and types.

    Collectives in it mean the devices of the program that calls it.
    """
    import jax
    from jax.core import ShapedArray
    from jax.extend.core import Primitive
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import func
    from jax.interpreters import mlir

    shapes, tree = jax.tree.flatten(results)
    primitive = Primitive("stablehlo")
    primitive.multiple_results = True
    primitive.def_abstract_eval(lambda *_: [ShapedArray(s.shape, s.dtype) for s in shapes])

    def lower(context: Any, *operands: Any) -> Any:
        whole = context.module_context
        with whole.module.context:
            if primitive not in whole.cached_primitive_lowerings:
                whole.cached_primitive_lowerings[primitive] = mlir.merge_mlir_modules(
                    whole.module, "raw_op", ir.Module.parse(text), dst_symtab=whole.symbol_table
                )
            name = whole.cached_primitive_lowerings[primitive]
            types = whole.symbol_table[name].type.results
            return func.CallOp(types, ir.FlatSymbolRefAttr.get(name), list(operands)).results

    mlir.register_lowering(primitive, lower)
    return lambda *operands: jax.tree.unflatten(tree, primitive.bind(*jax.tree.leaves(operands)))


def text_of(function: Callable[..., Any]) -> str:
    """The text of one of these functions.

    >>> text_of(stablehlo).splitlines()[0]
    'def stablehlo(text: str, results: Any) -> Callable[..., Any]:'
    """
    return inspect.getsource(function).rstrip()
