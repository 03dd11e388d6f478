"""What does `import hlosharding` cost over `import numpy`, and `hlosharding --help` over bare Python?"""

from __future__ import annotations

import subprocess
import sys
import time

from rich.table import Table

from benchmarks.verdict import finish

REPEATS = 15


def seconds(*arguments: str) -> float:
    """The shortest of several runs of a fresh interpreter."""
    runs = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        runs.append(time.perf_counter() - start)
    return min(runs)


def main() -> None:
    """Print the table; fail where a limit is missed."""
    table = Table("what", "seconds", "over", "seconds", "difference", "at most", title="Start-up")
    kept = []
    for what, code, over, base, limit in (
        ("import numpy, hlosharding", "import numpy, hlosharding", "import numpy", "import numpy", 0.05),
        ("hlosharding --help", "import hlosharding.cli as c; c.main(['--help'])", "bare Python", "pass", 0.3),
    ):
        mine, bare = seconds("-c", code), seconds("-c", base)
        kept.append(mine - bare <= limit)
        colour = "green" if kept[-1] else "red"
        difference = f"[{colour}]{mine - bare:.3f}[/{colour}]"
        table.add_row(what, f"{mine:.3f}", over, f"{bare:.3f}", difference, f"{limit:g}")
    finish(table, kept)


if __name__ == "__main__":
    main()
