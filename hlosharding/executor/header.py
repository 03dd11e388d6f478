"""The beginning of a program's text: what it is, what it imports, and what its functions refer to.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hlosharding.executor.axes import Axes
from hlosharding.executor.prelude import IMPORTS, attention_in_full, compile_once, keeping_nan, stablehlo, text_of
from hlosharding.executor.text import quoted_text, string_text, tuple_of
from hlosharding.spmd import Groups

# Beside jax itself: what a text says where it needs the import.
_IMPORTS = {
    "import jax.numpy as jnp": "jnp.",
    "import ml_dtypes": "ml_dtypes.",
    "import numpy as np": "",
    "from jax import lax": "",
    "from jax.experimental import io_callback": "io_callback(",
    "from jax.experimental.buffer_callback import buffer_callback": "buffer_callback(",
    "from jax.experimental.compute_on import compute_on": "with compute_on(",
    "from jax.sharding import PartitionSpec as P": "",
}
_HELPERS = {
    attention_in_full: "attention_in_full(",
    compile_once: "@compile_once\n",
    keeping_nan: "keeping_nan(lax.",
    stablehlo: "stablehlo(",
}
_MODES = {
    "CLAMPED": '"promise_in_bounds"  # the plain HLO gather: it clamps indices that are out of bounds',
    "DROPPED": '"drop"  # the plain HLO scatter: it drops updates that are out of bounds',
}


def header_text(
    name: str,
    axes: Axes,
    num_devices: int,
    *,
    is_wide: bool,
    blocks: Sequence[str],
    constants: Mapping[str, np.ndarray],
    groups: Mapping[Groups, str],
    raw: Mapping[str, str],
) -> str:
    """`blocks`: the text of the functions; `groups`, `raw`: the names of groups and of StableHLO functions in it."""
    body = "\n".join((*blocks, *raw))
    helpers = [function for function, mark in _HELPERS.items() if mark in body]
    imports = ["import jax", *(line for line, mark in _IMPORTS.items() if mark in body)]
    return "\n".join(
        [
            *_docstring(name, axes, num_devices, is_wide),
            "",
            *(IMPORTS.split("\n") + [""] if helpers else []),
            *imports,
            "",
            f"AXES = {tuple_of([*map(string_text, axes.names)])}",
            *(f"{mode} = {value}" for mode, value in _MODES.items() if mode in body),
            *(f"{name} = {value!r}" for value, name in groups.items()),
            *_handed_over(constants, body),
            *(f"\n\n{text_of(helper)}" for helper in helpers),
            *(["", "", "# Ops without a jax.lax form, in their own StableHLO."] if raw else []),
            *(f"{name} = {text}" for text, name in raw.items()),
        ]
    )


def _docstring(name: str, axes: Axes, num_devices: int, is_wide: bool) -> Iterator[str]:
    sizes = ", ".join(f"{quoted_text(n)}={s}" for n, s in zip(axes.names, axes.sizes, strict=True))
    yield f'"""{quoted_text(name)}: what each of {num_devices} devices runs, on a mesh {sizes}.'
    yield ""
    yield "Shapes are local.  Written by hlosharding; this text is what runs."
    if is_wide:
        yield "It has 64-bit values: trace and call it under jax.enable_x64(True)."
    yield '"""'


def _handed_over(constants: Mapping[str, np.ndarray], body: str) -> Iterator[str]:
    """What is too large for a text, or is none."""
    if constants:
        yield "\n# Arrays of the module, handed over beside this text."
        yield from (f'# CONSTANTS["{key}"]: {value.dtype.name}{list(value.shape)}' for key, value in constants.items())
    if "CALLBACKS[" in body:
        yield "\n# Python functions of the program, handed over beside this text: CALLBACKS."
