"""A convolutional net's training step, split over the batch and over image rows.

python examples/conv_net.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else XLA says at each comparison that GSPMD will go away

import jax

import hlosharding as hs
from examples import devices, walk
from examples.models import conv_net


def train(step: Any, config: conv_net.Config) -> Iterator[float]:
    """The loss of each training step."""
    params = conv_net.init(config)
    optimizer = conv_net.init_optimizer(params)
    for batch in conv_net.batches(config):
        params, optimizer, loss = step(params, optimizer, batch)
        yield float(loss)


def main() -> None:
    """Show the program, then train on all devices and on one."""
    devices.choose_platform()
    console, config = walk.wide_console(), conv_net.Config()
    mesh, single = devices.data_by_model(), devices.one_device()
    console.print(f"[bold]Convolutional training step[/bold] on {mesh}\n")
    step = conv_net.training_step(mesh)
    walk.show_program(console, "conv_net_step", step, conv_net.abstract_arguments(config), mesh, why="batch[1]")
    sharded = train(hs.jit(step, mesh=mesh), config)
    walk.show_losses(console, sharded, train(jax.jit(conv_net.training_step(single)), config), mesh)


if __name__ == "__main__":
    main()
