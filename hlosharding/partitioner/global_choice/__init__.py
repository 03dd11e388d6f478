"""Choices over several ops at once, made before anything is built: how values between ops lie."""

from hlosharding.partitioner.global_choice.improved_table import improved_table

__all__ = ["improved_table"]
