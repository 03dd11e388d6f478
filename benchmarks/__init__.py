"""Measurements against the live XLA in jaxlib, one question a module, one table each: `python -m benchmarks`."""
