"""Hostile input: every reader of ours gives a value or an error of ours, soon, whatever it is given.

`targets.py` is the table: a format is a row.  `python -m tests.fuzz NAME --seconds 3600 --seed 1` looks for what a
reader cannot stand and keeps it in `corpus/`, which the tests replay.
"""
