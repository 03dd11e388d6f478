"""The main job: a GPT-2-style training step, six annotations, sharded, explained and run.

    python examples/gpt2_training.py

On all GPUs of the machine, or on eight CPU devices where there are none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else XLA says at each comparison that GSPMD will go away

from examples.progress import doing

with doing("import JAX"):
    import jax

    import hlosharding as hs
    from examples import devices, walk
    from examples.models import gpt2


def train(step: Any, config: gpt2.Config) -> Iterator[float]:
    """The loss of each training step."""
    params = gpt2.init(config)
    optimizer = gpt2.init_optimizer(params)
    for tokens in gpt2.batches(config):
        params, optimizer, loss = step(params, optimizer, tokens)
        yield float(loss)


def main() -> None:
    """Show the program, then train on all devices and on one."""
    devices.choose_platform()
    console, config = walk.wide_console(), gpt2.Config()
    mesh, single = devices.data_by_model(), devices.one_device()
    console.print(f"[bold]GPT-2-style training step[/bold], {config.layers} layers, on {mesh}\n")
    step = gpt2.training_step(mesh)
    walk.show_program(
        console, "gpt2_step", step, gpt2.abstract_arguments(config), mesh, why="params['layers'][0]['up_bias']"
    )
    sharded = train(hs.jit(step, mesh=mesh), config)
    walk.show_losses(console, sharded, train(jax.jit(gpt2.training_step(single)), config), mesh)


if __name__ == "__main__":
    main()
