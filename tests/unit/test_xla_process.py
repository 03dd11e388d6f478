"""The child process for conversions: it answers, dies alone, is replaced, and may not hang us."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlosharding import xla_bridge
from hlosharding.errors import LoadError
from hlosharding.xla_process import Child, read_frame, write_frame

GOOD = b"HloModule m\nENTRY e {\n  ROOT x = f32[3] parameter(0)\n}\n"
DEADLY = b"HloModule m\nENTRY e {\n  x = f32[3] parameter(0)\n  ROOT y = f32[4] reshape(x)\n}\n"


def test_frames_come_out_as_they_went_in() -> None:
    pipe = io.BytesIO()
    write_frame(pipe, 3, b"abc" * 1000)
    write_frame(pipe, 0, b"")
    pipe.seek(0)
    assert [read_frame(pipe), read_frame(pipe), read_frame(pipe)] == [(3, b"abc" * 1000), (0, b""), None]


def test_a_dying_child_is_an_error_and_the_next_question_is_answered() -> None:
    child = Child()
    try:
        with pytest.raises(LoadError, match="ended its process on this input: exit status 1"):
            child.ask("no such conversion", GOOD)
        assert child.ask("hlo-text-to-proto", GOOD)
    finally:
        child.close()


def test_text_that_ends_some_versions_of_xla_is_an_error_in_all() -> None:
    with pytest.raises(LoadError, match=r"Check failed|not HLO text"):
        xla_bridge.hlo_text_to_proto(DEADLY.decode())


def test_a_child_that_takes_too_long_is_stopped() -> None:
    child = Child()
    try:
        with pytest.raises(LoadError, match="did not come to an end"):
            child.ask("hlo-text-to-proto", GOOD, seconds=0.0)
        assert child.ask("hlo-text-to-proto", GOOD)
    finally:
        child.close()


def test_errors_of_a_conversion_leave_the_child_alive() -> None:
    child = Child()
    try:
        child.ask("hlo-text-to-proto", GOOD)
        process = child._process
        with pytest.raises(LoadError, match="not HLO text"):
            child.ask("hlo-text-to-proto", b"garbage")
        assert child._process is process
    finally:
        child.close()


def test_many_threads_may_ask() -> None:
    texts = [GOOD.replace(b"[3]", b"[%d]" % n).decode() for n in range(1, 30)]
    with ThreadPoolExecutor(8) as pool:
        protos = list(pool.map(xla_bridge.hlo_text_to_proto, texts))
    printed = [xla_bridge.hlo_proto_to_text(proto, layouts=False) for proto in protos]
    assert all(f"f32[{n}] parameter" in text for n, text in enumerate(printed, start=1))


def test_megabytes_go_through() -> None:
    values = ", ".join("1" for _ in range(500_000))
    proto = xla_bridge.hlo_text_to_proto(f"HloModule m\nENTRY e {{\n ROOT c = s32[500000] constant({{{values}}})\n}}")
    assert xla_bridge.hlo_proto_to_text(proto).count("1, 1") > 200_000
