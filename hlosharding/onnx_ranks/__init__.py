"""A partitioned program as ONNX models, one for each rank."""

from hlosharding.onnx_ranks.ranks import OnnxRanks, write_onnx_ranks

__all__ = ["OnnxRanks", "write_onnx_ranks"]
