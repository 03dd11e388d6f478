"""Real models, exported by PyTorch's two exporters and quantised by ONNX Runtime, held to ONNX Runtime's results.

They need the extra `onnx-models`; `make onnx-models` installs it and runs them.
"""
