"""Choices over several ops at once, made before anything is built: how values between ops lie."""

from hlosharding.partitioner.global_choice.between_ops import improved_table

__all__ = ["improved_table"]
