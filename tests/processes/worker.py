"""One of several processes: runs every case and writes what became of it, as JSON, to a file.

usage: python -m tests.processes.worker MODULE PORT PROCESSES NUMBER FILE
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

DEVICES = 8


def main(module: str, port: str, processes: int, number: int, answers: Path) -> None:
    """Join the others, run the module's cases in order."""
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES // processes)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, number, initialization_timeout=60)
    cases = importlib.import_module(f"tests.processes.{module}").CASES
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    answers.write_text(json.dumps({name: _outcome(case.run, mesh) for name, case in cases.items()}))


def _outcome(run: Any, mesh: Any) -> dict[str, Any]:
    import numpy as np

    try:
        return {"result": np.asarray(run(mesh)).tolist()}
    except Exception as error:  # noqa: BLE001  (any: it is told to the test)
        return {"error": str(error), "traceback": traceback.format_exc()}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
