"""A headless Chromium of the system, driven by selenium; where there is none the tests are skipped, and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hlosharding as hs

SWITCHES = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,1000"
).split()
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in (*SWITCHES, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture(scope="session")
def program() -> hs.Partitioned:
    """Twelve layers that are not alike, so that tables have several pages."""
    lines = ["HloModule deep, num_partitions=8", "ENTRY main {", "  x0 = f32[64,64] parameter(0), sharding=ROWS"]
    for n in range(24):
        wide = 64 + 8 * n
        lines += [
            f"  w{n} = f32[64,{wide}] parameter({2 * n + 1}), sharding=COLUMNS",
            f"  v{n} = f32[{wide},64] parameter({2 * n + 2}), sharding=ROWS_OF_MODEL",
            f"  h{n} = f32[64,{wide}] dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, "
            f'metadata={{source_file="m.py" source_line={n + 10}}}',
            f"  x{n + 1} = f32[64,64] dot(h{n}, v{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, "
            f'metadata={{source_file="m.py" source_line={n + 50}}}',
        ]
    text = "\n".join([*lines, "  ROOT out = f32[64,64] negate(x24)", "}"])
    text = text.replace("ROWS_OF_MODEL", "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    text = text.replace("COLUMNS", "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}")
    text = text.replace("ROWS", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}")
    return hs.partition(hs.load(text), machine=hs.machines.h100(8))


@pytest.fixture(scope="session")
def page(program: hs.Partitioned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    hs.report(program, against=program, names=("this", "that"), path=path)
    return path
