"""README.md as PyPI shows it: links that are relative in the repository lead to the files of this version's tag."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"\]\((?![a-z]+:|#)(?P<target>[^)\s]+)\)")


def with_absolute_links(page: str, source: str) -> str:
    """The page with each relative link below the URL `source`."""
    return _RELATIVE.sub(lambda link: f"]({source}/{link['target']})", page)


class PageOfPyPI(MetadataHookInterface):
    """The field `readme`, which pyproject.toml leaves to this hook."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the field."""
        page = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = f"{metadata['urls']['Source']}/blob/v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(page, source)}
