"""Called by MkDocs (mkdocs.yml): README.md is the first page, links out of docs/ go to the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
SECOND = re.compile(r"\(#(hs\w+)-(\d+)\)")
"""A name of the reference that differs from another in its capitals alone: -1 on GitHub, _1 in Markdown."""


def on_config(config: Any) -> Any:
    """Headings are called what GitHub calls them."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    """The README is the page `index.md`."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page with links as the site needs them."""
    docs = Path(config.docs_dir)
    folder = ROOT if page.file.src_uri == "index.md" else (docs / page.file.src_uri).parent

    def led(link: re.Match[str]) -> str:
        aim, anchor = Path(os.path.normpath(folder / link["path"])), link["anchor"] or ""
        if aim == ROOT / "README.md":
            return f"](index.md{anchor})"
        inside = aim.is_relative_to(docs) and files.get_file_from_path(str(aim.relative_to(docs)))
        if inside:
            return f"]({aim.relative_to(docs)}{anchor})"
        return f"]({config.repo_url.rstrip('/')}/blob/main/{aim.relative_to(ROOT)}{anchor})"

    return SECOND.sub(r"(#\1_\2)", LINK.sub(led, markdown))
