"""The README shows some lines of what `make demo` prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.golden.abridged import brought_up_to_date, missing_lines
from tests.golden.pages import ROOT

README = ROOT / "README.md"
SHOWN = re.compile(r"(?<=```text\n)GPT-2-style training step.*?(?=```)", re.DOTALL)


def printed_by_the_demo(folder: Path) -> str:
    """On eight CPU devices, whatever this machine has."""
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(ROOT / "examples" / "gpt2_training.py")]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_what_the_demo_prints(update_golden: bool, tmp_path: Path) -> None:
    page, printed = README.read_text(), printed_by_the_demo(tmp_path)
    if update_golden:
        page = SHOWN.sub(lambda found: brought_up_to_date(found.group(), printed) + "\n", page)
        README.write_text(page)
    [shown] = SHOWN.findall(page)
    assert missing_lines(shown, printed) == []
