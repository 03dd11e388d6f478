"""What is made at first use is made once, also where threads ask at the same time."""

from __future__ import annotations

from threading import Event

from hlosharding.ir import Shape
from hlosharding.once import once
from tests.support.threads import in_threads


def test_threads_that_ask_at_once_get_one_and_the_same() -> None:
    began = Event()

    @once
    def table() -> object:
        began.wait(0.05)  # the others come meanwhile
        return object()

    assert len(set(in_threads(lambda _: table()))) == 1


def test_one_that_fails_is_asked_again() -> None:
    answers = iter([ValueError("not yet"), None])

    @once
    def table() -> int:
        if (error := next(answers)) is not None:
            raise error
        return 42

    failed = [type(error) for error in (_error_of(table), _error_of(table)) if error is not None]
    assert failed == [ValueError]
    assert table() == 42


def _error_of(function: object) -> Exception | None:
    try:
        assert callable(function)
        function()
    except ValueError as error:
        return error
    return None


def test_a_shape_is_one_object_in_all_threads() -> None:
    """Shapes are compared by identity: a second object would be another shape."""
    dims = [(size, 7, 11) for size in range(20_000, 22_000)]
    made = in_threads(lambda _: [Shape.array("f32", d) for d in dims])
    assert all(len(set(of_threads)) == 1 for of_threads in zip(*made, strict=True))
