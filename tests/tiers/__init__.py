"""Which tests `make test` runs: by what each test function took when all of them last ran.

`make test-all` writes `cpu_seconds.json`; nobody writes it by hand.
"""

from tests.tiers.quick_set import QuickSet, chosen_share
from tests.tiers.recorder import RECORD, Recorder

__all__ = ["RECORD", "QuickSet", "Recorder", "chosen_share"]
