"""The child process for conversions: it answers, dies alone, is replaced, and may not hang us."""

from __future__ import annotations

import fcntl
import io
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlosharding import xla_bridge, xla_process
from hlosharding.errors import LoadError
from hlosharding.xla_process import Child, PipeFrame, _read_exactly, read_question, write_frame

GOOD = b"HloModule m\nENTRY e {\n  ROOT x = f32[3] parameter(0)\n}\n"
DEADLY = b"HloModule m\nENTRY e {\n  x = f32[3] parameter(0)\n  ROOT y = f32[4] reshape(x)\n}\n"


def test_questions_come_out_with_their_kind() -> None:
    pipe = io.BytesIO()
    write_frame(pipe, PipeFrame(4, 7, b"abc" * 1000), "kind")
    write_frame(pipe, PipeFrame(0, 2**40, b""))
    pipe.seek(0)
    assert [read_question(pipe) for _ in range(3)] == [("kind", 7, b"abc" * 1000), ("", 2**40, b""), None]


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


def test_after_an_interrupt_the_next_answer_is_to_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    read = Child._read

    def interrupted(*_: object) -> PipeFrame:
        raise KeyboardInterrupt

    try:
        child.ask("hlo-text-to-proto", GOOD)
        monkeypatch.setattr(Child, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            child.ask("hlo-text-to-proto", GOOD.replace(b"[3]", b"[4]"))
        monkeypatch.setattr(Child, "_read", read)
        proto = child.ask("hlo-text-to-proto", GOOD.replace(b"[3]", b"[5]"))
        assert "f32[5]" in xla_bridge.hlo_proto_to_text(proto, layouts=False)
    finally:
        child.close()


def test_an_answer_to_another_question_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child()
    read = Child._read
    monkeypatch.setattr(Child, "_read", lambda *a: read(*a)._replace(number=0))
    try:
        with pytest.raises(LoadError, match="answered question 0, asked was 1"):
            child.ask("hlo-text-to-proto", GOOD)
    finally:
        child.close()


HUGE = b"HloModule m\nENTRY e {\n  ROOT x = f32[4000000000] constant({...})\n}\n"


def test_a_small_text_cannot_take_the_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(xla_process.GIGABYTES, "2")
    child = Child()
    try:
        with pytest.raises(
            LoadError, match=f"RESOURCE_EXHAUSTED|ended its process.*give it more memory: {xla_process.GIGABYTES}"
        ):
            child.ask("hlo-text-to-proto", HUGE)
        assert child.ask("hlo-text-to-proto", GOOD)
    finally:
        child.close()


def test_the_users_patience_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(xla_process.SECONDS, "1e-9")
    child = Child()
    try:
        with pytest.raises(LoadError, match=f"did not come to an end within .*; give it more: {xla_process.SECONDS}"):
            child.ask("hlo-text-to-proto", GOOD)
        for wrong in ("soon", "nan", "-1"):
            monkeypatch.setenv(xla_process.SECONDS, wrong)
            with pytest.raises(LoadError, match=f"{xla_process.SECONDS} is '{wrong}'; write a positive number"):
                child.ask("hlo-text-to-proto", GOOD)
    finally:
        child.close()


def test_a_process_may_have_many_files_open() -> None:
    reading, writing = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1100)
    try:
        os.write(writing, b"abc")
        assert _read_exactly(high, 3, time.monotonic() + 10) == b"abc"
    finally:
        for descriptor in (reading, writing, high):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
