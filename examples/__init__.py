"""Programs that use hlosharding as its users do; each runs by itself: `python examples/gpt2_training.py`."""
