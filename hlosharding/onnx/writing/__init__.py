"""From HLO to ONNX: the program of one device as an `onnx.ModelProto`."""

from hlosharding.onnx.writing.program import write_program

__all__ = ["write_program"]
