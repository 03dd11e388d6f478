"""The table of XLA's tests and ours is complete and up to date."""

from __future__ import annotations

from tests.xla_mirror.readme import PATH, mirrored, readme, xla_tests


def test_every_test_of_xla_has_a_counterpart() -> None:
    listed = [name for names in xla_tests().values() for name in names]
    assert set(mirrored()) == set(listed)
    assert len(listed) == 290 + 120


def test_readme_is_what_the_recorder_writes() -> None:
    assert PATH.read_text() == readme()
