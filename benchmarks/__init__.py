"""Measurements against the live XLA in jaxlib, one question a module, one table each: `python -m benchmarks`."""

import os

# XLA reads it once; without it, it says at each compile with GSPMD that GSPMD will go away.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
