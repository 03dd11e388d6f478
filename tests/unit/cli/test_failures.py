"""Wrong input is status 1 and one line, wrong usage is 2; nothing that a user types ends in a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hlosharding.cli
from hlosharding import wire
from hlosharding.cli import main
from hlosharding.frontends import load

MLP = str(Path(__file__).resolve().parents[3] / "docs" / "mlp.hlo")


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command whose input is wrong."""
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("hlosharding: ")
    return line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("propagate", "no/such/file.hlo"), "cannot read no/such/file.hlo: no such file"),
        (("propagate", "/"), "it is a folder"),
        (("propagate", MLP, "--annotate", "w2={devices=[3]<=[4]}"), "[3] has 3 tiles, the iota [4] 4 devices; at w2"),
        (("propagate", MLP, "--annotate", "hiden={replicated}"), "did you mean hidden"),
        (("propagate", MLP, "--annotate", "w2=P(model)"), "needs a mesh"),
        (("propagate", MLP, "--annotate", "w2=P(modle)", "--mesh", "model=8"), "the mesh has no axis 'modle'"),
        (("propagate", MLP, "--emit", "mesh"), "the program has none; add --mesh x=2,y=4"),
        (("propagate", MLP, "--emit", "mesh", "--mesh", "a=4,b=2"), "split by part of axis a"),
        (("partition", MLP, "-n", "4"), "is for 8 devices, the program for 4"),
        (("explain", MLP, "hiden"), "did you mean hidden?"),
        (("explain", MLP, "mlp.py:70"), "no value is made at mlp.py:70; did you mean mlp.py:7"),
        (("convert", MLP, "--emit", "hlo", "-o", "/no/such/folder/x"), "cannot write /no/such/folder/x"),
        (("convert", MLP, "--emit", "hlo", "--format", "hlo-proto"), "no HloModuleProto"),
        (("convert", "--sharding", "[[x]]", "--to", "hlo"), "[[x]] is read over a mesh; pass mesh="),
        (("convert", "--sharding", "{maximal device=1}", "--to", "mesh"), "cannot say that all of it is on device 1"),
        (("convert", "--sharding", "{devices=[2]", "--to", "sdy"), "position 12: {devices=[2]>>>"),
        (("run", MLP, "--inputs", MLP), "is no .npz file"),
        (("explain", MLP, "nowhere"), "no instruction %nowhere; the names are those of the HLO text"),
        (("propagate", MLP, "--annotate", "x={devices=[2]"), "at x = %x f32[64,128], position 12: {devices=[2]>>>"),
        (("propagate", MLP, "--mesh", "data=3"), "the mesh has 3 devices, the program is for 8; name axes"),
        (("partition", MLP, "--machine", "h100:4"), "h100:4 has 4 devices, 8 are needed; write h100:8, or h100"),
        (("compile", MLP, "--target", "h100:16"), "has 16 devices, the program is for 8; write h100:8, or h100 alone"),
        (("compile", MLP, "--target", "cpu"), "cpu(8) from here: the machine says nothing of its chip; take a100"),
        (("reshard", "--shape", "(f32[4])", "{replicated}", "{replicated}"), "--shape (f32[4]) is of no array"),
        (("reshard", "--shape", "f32[-4]", "{replicated}", "{replicated}"), "no shape: 'f32[-4]'"),
        (("draw", "--shape", "token[]", "{replicated}"), "--shape token[] is of no array"),
        (("reshard", "--shape", "f32[8]", "{devices=[4]<=[4]}", "{devices=[8]<=[8]}"), "uses 4 devices, there are 8"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    assert says in complaint(capsys, *words)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, bytes(range(256)) * 20, b"HloModule m", b"module {", b"HloModule m\nENTRY e {", b"PK\x03\x04"],
)
def test_garbage_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert complaint(capsys, "propagate", "-")


def test_ops_that_contradict_themselves_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def says(content: bytes) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return complaint(capsys, "propagate", "-")

    text = Path(MLP).read_text()
    broken = says(text.replace("active = f32[64,512]", "active = f32[64512]").encode())
    assert "shape f32[64512], but operand %hidden is f32[64,512]; at %active" in broken
    proto = wire.HloModuleProto.FromString(load(text).to_hlo_proto())
    [total] = [i for c in proto.computations for i in c.instructions if i.opcode == "reduce"]
    [hidden] = [i for c in proto.computations for i in c.instructions if i.name == "hidden"]
    del total.called_computation_ids[:]
    assert "reduce names no computation to call; at %total" in says(proto.SerializeToString())
    hidden.dot_dimension_numbers.lhs_contracting_dimensions[:] = [7]
    assert "dim 7 is not one of the 2 dims of f32[64,128]; at %hidden" in says(proto.SerializeToString())


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.ones((64, 128), np.float32)}, "has no array 'w1' or 'arr_1'"),
        ({"x": np.ones((64, 127), np.float32)}, "the file has [64, 127], the program takes f32[64,128]; at %x"),
        ({"x": np.ones((64, 128), np.complex64)}, "the file has complex64"),
    ],
)
def test_wrong_arrays_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arrays: dict[str, Any], says: str
) -> None:
    file = tmp_path / "in.npz"
    np.savez(file, **arrays)
    assert says in complaint(capsys, "run", MLP, "--inputs", str(file))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "COMMAND"),
        (("simulte",), "invalid choice"),
        (("partition", MLP, "-n", "0"), "0 is not a positive number"),
        (("partition", MLP, "--machine", "h1000"), "there are"),
        (("partition", MLP, "--machine", "h100:x"), "as h100:16"),
        (("propagate", MLP, "--mesh", "data=2,data=4"), "is no mesh"),
        (("propagate", MLP, "--mesh", "data"), "is no mesh"),
        (("propagate", MLP, "--annotate", "w2"), "is no annotation"),
        (("propagate", MLP, "--annotate", "w2=P(1 + 1)"), "is no PartitionSpec"),
        (("propagate", MLP, "--annotate", "w2=P(open('x'))"), "is no PartitionSpec"),
        (("propagate", MLP, "--annotate", "w2=P("), "is no PartitionSpec"),
        (("propagate", MLP, "--emit", "python"), "invalid choice"),
        (("run", MLP, "--random", "1", "--inputs", "x.npz"), "not allowed with"),
        *(
            ((command, MLP, f"--tolerance={said}"), f"{said} is no tolerance: write 0, 0.01")
            for command, said in (("run", "nan"), ("run", "inf"), ("check", "x"), ("check", "-1"))
        ),
        (("run", MLP, "--random", "-1"), "-1 is no seed"),
        (("convert",), "one of the arguments FILE --sharding is required"),
        (("convert", MLP), "write FILE --emit FORMAT, or --sharding TEXT --to FORMAT"),
        (("convert", MLP, "--emit", "hlo", "--to", "sdy"), "write FILE --emit FORMAT, or --sharding"),
        (("convert", "--sharding", "[[0]]", "--emit", "hlo"), "write FILE --emit FORMAT, or --sharding"),
        (("convert", MLP, "--sharding", "[[0]]", "--to", "hlo"), "not allowed with"),
        (("convert", "--sharding", "[[0]]", "--to", "text"), "invalid choice"),
        (("convert", "--sharding", "[[0]]", "--to", "hlo", "--ndim", "x"), "x is no rank"),
        (("suggest", MLP, "w2", "--most", "few"), "few is not a positive number"),
    ],
)
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert says in capsys.readouterr().err


def test_a_difference_is_status_1_after_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import hlosharding.cli.run as command

    def wrong(*_: Any) -> list[np.ndarray]:
        return [np.zeros((64, 128), np.float32), np.zeros((), np.float32)]

    monkeypatch.setattr(command, "one_device", wrong)
    assert main(["run", MLP, "--check", "--reference"]) == 1
    out, err = capsys.readouterr()
    assert "DIFFERS" in out
    assert "output 0, 1 differs from one device's run" in err


OF_DEVICES = """HloModule m, num_partitions=8
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
ENTRY e {
  p = f32[8] parameter(0), sharding={replicated}
  ROOT sum = f32[8] all-reduce(p), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true,
    to_apply=add, sharding={replicated}
}
"""


@pytest.mark.parametrize("how", [(), ("--reference",)])
def test_a_program_that_names_its_devices_is_not_compared_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, how: tuple[str, ...]
) -> None:
    """On one device the sum would be of one term."""
    file = tmp_path / "sum.hlo"
    file.write_text(OF_DEVICES)
    assert "what its 8 devices do" in (said := complaint(capsys, "run", str(file), "--check", *how))
    assert "at %sum; leave --check out" in said
    assert main(["run", str(file), *how]) == 0


def test_a_platform_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    jax.devices()  # the command chooses its devices where JAX does not run yet; here it runs on CPU devices
    assert "JAX sees no GPU; leave --platform out" in complaint(capsys, "run", MLP, "--platform", "cuda")


def test_too_little_memory_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(_: str) -> None:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(hlosharding.cli.importlib, "import_module", exhausted)
    assert "out of memory: Unable to allocate 7.28 TiB; take" in complaint(capsys, "convert", MLP, "--emit", "hlo")


def test_an_interrupt_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hlosharding.cli.importlib, "import_module", interrupted)
    assert main(["convert", MLP, "--emit", "hlo"]) == 130
    assert capsys.readouterr().err == "hlosharding: interrupted\n"


# The process as a whole

FOR_EVER = """HloModule for_ever, num_partitions=4
%body {
  %p = (s32[], f32[1024,1024]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[1024,1024] get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  %y = f32[1024,1024] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[1024,1024]) tuple(%n, %y)
}
%cond {
  %p = (s32[], f32[1024,1024]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %limit = s32[] constant(100000)
  ROOT %lt = pred[] compare(%i, %limit), direction=LT
}
ENTRY %main {
  %x = f32[1024,1024] parameter(0), sharding={devices=[4,1]<=[4]}
  %zero = s32[] constant(0)
  %start = (s32[], f32[1024,1024]) tuple(%zero, %x)
  %loop = (s32[], f32[1024,1024]) while(%start), condition=%cond, body=%body
  ROOT %out = f32[1024,1024] get-tuple-element(%loop), index=1
}
"""


@pytest.mark.parametrize("options", [[], ["--reference"]], ids=["devices", "reference"])
def test_an_interrupted_run_ends_at_once_though_xla_does_not(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "for_ever.hlo"
    file.write_text(FOR_EVER)
    command = [sys.executable, "-m", "hlosharding", "run", str(file), *options]
    # Whoever runs the tests in the background may have told them to ignore interrupts, and children inherit that.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=listen)  # noqa: PLW1509
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):  # long enough that XLA runs, though any moment will do
            process.wait(5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err


def test_names_that_the_terminal_cannot_write_are_spelled_out(tmp_path: Path) -> None:
    file = tmp_path / "greek.mlir"
    file.write_text(
        'module @m { func.func @main(%x: tensor<4xf32> loc("λ")) -> tensor<4xf32> { return %x : tensor<4xf32> } }'
    )
    command = [sys.executable, "-m", "hlosharding", "explain", str(file), "λ"]
    done = subprocess.run(command, check=False, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"Traceback" not in done.stderr
    assert b"\\u03bb" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "status", "out", "says"),
    [
        ("--sharding - <&-", 1, "", "cannot read standard input: Bad file descriptor"),
        ("--sharding '{replicated}' >&-", 1, "", "cannot write the output: Bad file descriptor"),
        ("--sharding '{replicated}' <&- 2>&-", 0, "{replicated}", ""),
    ],
)
def test_a_stream_that_is_closed(words: str, status: int, out: str, says: str) -> None:
    line = f"{sys.executable} -m hlosharding convert --to hlo {words}"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (status, out)
    assert says in done.stderr
    assert done.stderr.count("\n") == bool(says)


def test_passes_cannot_be_written_into_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"cannot write {MLP}: File exists" in complaint(capsys, "partition", MLP, "--dump-passes", MLP)


def test_python_dash_m_is_the_command_and_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "hlosharding", "convert", MLP, "--emit", "json"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_forces_its_own_devices() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-m", "hlosharding", "run", MLP, "--check", "--emit", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"agrees": true') == 2


@pytest.mark.parametrize("output", [["-o", "/dev/full"], []])
def test_a_full_disk_is_one_line(output: list[str]) -> None:
    command = [sys.executable, "-m", "hlosharding", "convert", "-", "--emit", "hlo", *output]
    program = "HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(command, input=program.encode(), stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == 1
    where = "/dev/full" if output else "the output"
    assert found.stderr.decode() == f"hlosharding: cannot write {where}: No space left on device\n"


def test_what_is_open_already_is_written_to_as_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hlosharding", "convert", "-", "--emit", "hlo", "-o", "/dev/stdout"]
    program = b"HloModule m\nENTRY e {\n  ROOT x = f32[4] parameter(0)\n}\n"
    assert b"parameter(0)" in subprocess.run(command, input=program, stdout=subprocess.PIPE, check=True).stdout
    with (tmp_path / "out").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        subprocess.run(command, input=program, stdout=file, check=True)
    content = (tmp_path / "out").read_bytes()
    assert content.startswith(b"before\n")
    assert b"parameter(0)" in content
