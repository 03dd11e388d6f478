"""What stands on PyPI: versions that agree, bounded dependencies that are needed, a page whose links lead somewhere."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import readme_renderer.markdown
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hlosharding as hs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"])}
PINNED = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
}
NAMES = {"google": "protobuf", "tomli-w": "tomli-w"}
"""What is imported under another name than it is installed."""
OPTIONAL = {"ipython"}
"""Imported only where a notebook runs, which brings it."""


def imported() -> set[str]:
    """The distributions that the package imports by statement."""
    nodes = [node for path in (ROOT / "hlosharding").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    roots = {module.partition(".")[0] for module in modules} - sys.stdlib_module_names - {"hlosharding"}
    return {NAMES.get(canonicalize_name(root), canonicalize_name(root)) for root in roots} - OPTIONAL


def test_what_is_imported_is_needed_and_no_more() -> None:
    assert imported() | {"jaxlib"} == NEEDED.keys()


def test_every_dependency_has_a_least_version_that_the_pinned_one_meets() -> None:
    for name, wanted in NEEDED.items():
        assert any(bound.operator == ">=" for bound in wanted.specifier), f"{name}: say the least version"
        assert wanted.specifier.contains(PINNED[name])


def test_the_version_is_one() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert {hs.__version__, *re.findall(r"^version: (.*)$", citation, re.MULTILINE)} == {PROJECT["version"]}
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert PROJECT["urls"]["Source"] in citation


def test_links_of_the_page_on_pypi_lead_to_files_of_the_tag() -> None:
    page = ProjectMetadata(str(ROOT), PluginManager()).core.readme
    source = f"{PROJECT['urls']['Source']}/blob/v{PROJECT['version']}/"
    shown = readme_renderer.markdown.render(page)
    assert shown is not None
    targets = re.findall(r'href="([^"]*)"', shown)
    ours = [target.removeprefix(source) for target in targets if target.startswith(source)]
    assert len(ours) > 20
    assert [t for t in targets if not t.startswith(("https://", "#user-content-"))] == []
    assert [t for t in ours if not (ROOT / t.partition("#")[0]).exists()] == []
    assert "<table>" in shown
