"""Cells by the names that IPython's own tracebacks give them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hlosharding.ir import Frame
from hlosharding.notebook import file_name
from hlosharding.plans.source_places import SourcePlace

compilerop = pytest.importorskip("IPython.core.compilerop", reason="pip install ipython")


def test_a_place_in_a_cell_is_called_as_in_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = compilerop.CachingCompiler()
    file = compiler.cache("x = 1\ny = 2\n", 5)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(compile=compiler))
    assert str(Frame(file, "f", 2, 0)) == "In[5]:2"
    assert str(SourcePlace(file, 2, 0, "add")) == "In[5]:2"
    assert str(Frame("/home/me/model.py", "f", 2, 0)) == "model.py:2"


@pytest.mark.parametrize("shell", [None, SimpleNamespace(compile=object())])
def test_without_a_shell_or_in_an_old_one_files_keep_their_names(
    monkeypatch: pytest.MonkeyPatch, shell: object
) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    assert file_name("ipykernel_1/2.py") == "2.py"
