"""A folder in which a page's commands and sessions run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.golden.pages import DOCS


@pytest.fixture
def docs_copy(tmp_path: Path) -> Path:
    """A copy of `docs`, since commands write files."""
    return shutil.copytree(DOCS, tmp_path / "docs")
