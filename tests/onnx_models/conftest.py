"""The modules beside the tests import PyTorch: where it is missing, pytest does not look for doctests in them."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") and find_spec("transformers") else ["exporting.py", "networks.py"]
