"""What only a process of its own can show of the command line: streams, signals, the terminal."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from few_documents import TRAIN, put

HANG = 200  # seconds, after which something has gone wrong


def spawn(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    """Run ``python -m longtail`` as a process of its own."""
    command = [sys.executable, "-m", "longtail", *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.run(command, check=False, timeout=HANG, **options)


class TestProcess:
    """What only a process of its own can show."""

    def test_results_on_stdout_and_the_rest_on_stderr(self, tmp_path):
        train = put(tmp_path / "train.jsonl", TRAIN)
        done = spawn("check", train, "--json", "--report", tmp_path / "a.png")
        assert done.returncode == 0
        assert json.loads(done.stdout)["description"]["documents"] == 4
        assert done.stderr.endswith(f"{tmp_path / 'a.png'}: written\n")

    def test_an_error_is_one_line_without_traceback(self, tmp_path):
        done = spawn("check", tmp_path / "none.jsonl")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"longtail: {tmp_path / 'none.jsonl'}: no such file or folder\n"

    def test_results_are_utf8_in_every_locale(self, tmp_path):
        file = put(tmp_path / "a.jsonl", [{"id": "ü", "text": "→", "labels": []}, *TRAIN])
        environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
        done = spawn("check", file, env=environment, text=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert "█ 2\n" in done.stdout.decode()
        assert "document without a label: ü\n" in done.stdout.decode()

    @pytest.mark.parametrize("lines", [1, 20_000])
    def test_closed_pipe(self, tmp_path, lines):
        file = put(tmp_path / "a.jsonl", [TRAIN[1]] * lines)
        reader, writer = os.pipe()
        os.close(reader)  # as `| head -1` does once it has its line
        done = spawn("convert", file, "-", stdout=writer)
        os.close(writer)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        assert done.returncode != 0

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_signals(self, tmp_path, number, code):
        # a test run in the background may have SIGINT ignored, which a child inherits
        start = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from longtail.cli import main; main()"
        command = [sys.executable, "-c", start, "convert", "-", str(tmp_path / "out.csv")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            line = json.dumps(TRAIN[0]).encode() + b"\n"
            process.stdin.write(
                line * (3_000_000 // len(line))
            )  # more than a pipe holds: it is reading
            process.stdin.flush()
            assert interrupted(process, number, line) == code
            assert process.stdout.read() == b""
            assert b"Traceback" not in process.stderr.read()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep this limit")
    @pytest.mark.parametrize("kilobytes", [400_000, 450_000, 600_000])
    def test_too_little_address_space(self, tmp_path, kilobytes):
        data = put(tmp_path / "train.jsonl", TRAIN)

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))

        done = spawn("train", data, "-o", tmp_path / "m", preexec_fn=limit)
        assert (done.returncode, done.stdout) == (1, "")
        result = f"longtail: ulimit -v: found {kilobytes:,} kB of address space; expected at least 716,800 kB, "
        assert done.stderr.startswith(result)
        assert done.stderr.count("\n") == 1
        assert spawn("--version", preexec_fn=limit).returncode == 0

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep this limit")
    def test_enough_address_space(self, tmp_path):
        data = put(tmp_path / "train.jsonl", TRAIN)

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (716_800 << 10, 716_800 << 10))

        done = spawn("check", data, preexec_fn=limit)
        assert done.returncode == 0, done.stderr

    def test_a_signal_while_something_is_let_go_is_not_lost(self):
        start = """if True:
            import os, signal, time
            from longtail import cli

            class Last:
                def __del__(self):
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(0.01)  # the signal is handled here, where Python ignores errors

            def work():
                Last()
                time.sleep(1000)

            cli.app = work
            cli.main()
        """
        done = subprocess.run(
            [sys.executable, "-c", start], capture_output=True, text=True, timeout=HANG
        )
        assert (done.returncode, done.stderr) == (143, "")

    @pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
    @pytest.mark.parametrize("quiet", [False, True])
    def test_progress_on_a_terminal(self, tmp_path, quiet):
        screen, stderr = os.openpty()
        command = [
            sys.executable,
            "-m",
            "longtail",
            *(["-q"] if quiet else []),
            "check",
            "-",
            "--json",
        ]
        environment = {**os.environ, "TERM": "xterm"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, stderr=stderr, env=environment, **pipes) as process:
            os.close(stderr)
            process.stdin.write(json.dumps(TRAIN[0]).encode() + b"\n")
            process.stdin.flush()
            drawn = (
                b"" if quiet else read_until(screen, b"reading -")
            )  # the bar is there before the data is
            process.stdin.close()
            drawn += read_until(screen, None)
            assert json.load(process.stdout)["description"]["documents"] == 1
        os.close(screen)
        assert process.returncode == 0
        assert (drawn == b"") == quiet


def interrupted(process: subprocess.Popen[bytes], number: int, line: bytes) -> int:
    """Return the exit code after a signal; one that comes just before a read blocks is only seen
    after that read.
    """
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(5)
    with suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
    return process.wait(HANG)


def read_until(screen: int, wanted: bytes | None) -> bytes:
    """Read from a terminal until ``wanted`` has come, or to its end."""
    seen = b""
    while wanted is None or wanted not in seen:
        try:
            more = os.read(screen, 4096)
        except OSError:  # Linux says so when the last writer is gone
            more = b""
        if not more:
            break
        seen += more
    assert wanted is None or wanted in seen
    return seen
