"""Choices over several ops at once, made before anything is built: which table, and how values between ops lie."""

from hlosharding.partitioner.global_choice.best_table import best_table

__all__ = ["best_table"]
