"""Small trainings of every kind, by the command line, in processes that can be interrupted."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import longtail as lt
from longtail import cli, reporting

LINEAR = {  # several levels, batches or trees each, so that there are stages to lose
    "xr-linear": ("tree.branching=4", "tree.leaf_size=8"),
    "parabel": ("tree.leaf_size=32",),
    "plt": ("tree.branching=8",),
    "extremetext": ("extremetext.dimensions=16", "extremetext.epochs=4"),
    "dismec": (),
    "pfastrexml": ("forest.trees=3",),
    "annexml": (
        "neighbours.learners=2",
        "neighbours.epochs=2",
        "neighbours.dimensions=16",
        "neighbours.index=exact",
    ),
}
TRANSFORMERS = ("cascadexml", "xr-transformer", "lightxml")
WORDS = ("inceptionxml", "inceptionxml-lf", "astec", "attentionxml")
_TRANSFORMER_SETTINGS = (
    "encoder.max_tokens=24",
    "training.batch_size=8",
    "training.checkpoint_steps=6",
)
_WORD_SETTINGS = (
    "encoder.width=16",
    "encoder.max_tokens=16",
    "training.batch_size=16",
    "training.checkpoint_steps=3",
)
_STOPS = (signal.SIGTERM, signal.SIGINT)


class Ended(NamedTuple):
    """How a process ended: its exit code, minus the signal that killed it, and what it said on
    stderr.
    """

    code: int
    said: str


@dataclass(frozen=True)
class Training:
    """A method on the first documents of the bundled sample; ``data`` is the folder that holds them
    as files.
    """

    method: str
    data: Path
    more: tuple[str, ...] = ()  # arguments of `longtail train`

    def arguments(self, model: Path, *options: str) -> list[str]:
        """Return the command that trains into ``model``."""
        return [
            "train",
            str(self.data / "train.jsonl"),
            "-o",
            str(model),
            "--method",
            self.method,
            *self.more,
            *options,
        ]

    def whole(self, model: Path, *options: str) -> float:
        """Train without interruption in this process, where kernels are compiled for those forked
        off; in seconds.
        """
        begin = time.perf_counter()
        ended = here(self.arguments(model, *options), model.with_name("said"))
        assert ended.code == 0, ended
        return time.perf_counter() - begin

    def child(self, model: Path, after: float | None = None, number: int = signal.SIGKILL) -> Ended:
        """Train in a process of its own, going on with what is there; it gets the signal after some
        seconds.
        """
        return forked(self.arguments(model, "--resume"), model.with_name("said"), after, number)


def training(method: str, data: Path) -> Training:
    """Return a training of ``method``, and write its data and its encoder where they are missing."""
    if not (data / "train.jsonl").exists():
        data.mkdir(exist_ok=True)
        for name, part in zip(("train", "valid"), lt.sample(), strict=True):
            lt.write(part.take(np.arange(400 if name == "train" else 60)), data / f"{name}.jsonl")
    if method in LINEAR:
        return Training(method, data, _set(LINEAR[method]))
    short = data / "short"
    if not (short / "encoder").exists():
        from tiny_encoder import write_encoder

        short.mkdir(exist_ok=True)
        lt.write(lt.read(data / "train.jsonl").take(np.arange(120)), short / "train.jsonl")
        write_encoder(short / "encoder", lt.read(short / "train.jsonl").texts, vocabulary=500)
    # one thread: those of torch would not be there after a fork
    options = ("--valid", str(data / "valid.jsonl"), "-j", "1", "--set", "training.epochs=2")
    member = (
        (f"encoder.name={short / 'encoder'}", *_TRANSFORMER_SETTINGS)
        if method in TRANSFORMERS
        else _WORD_SETTINGS
    )
    return Training(method, short, options + _set(member))


def _set(settings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for setting in settings for word in ("--set", setting))


def here(arguments: list[str], output: Path) -> Ended:
    """Run a command in this process; ``said`` keeps all that it prints."""
    with as_a_process(output):
        code = _command(arguments)
    return Ended(code, output.read_text(errors="replace"))


def forked(
    arguments: list[str], output: Path, after: float | None = None, number: int = signal.SIGKILL
) -> Ended:
    """Run a command in a process of its own that has all of this one's kernels; ``said`` keeps its
    messages.
    """
    process = start(arguments, output)
    if after is not None:
        until = time.monotonic() + after
        while time.monotonic() < until:
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break  # it has come to its end
            time.sleep(0.001)
        os.kill(process, number)
    return end_of(process, output)


def start(arguments: list[str], output: Path) -> int:
    """Begin a command in a process of its own, and return the process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # until whoever acts on them is in place
    process = os.fork()
    if process == 0:
        code = 70
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # as outside tests: a signal may come between open and with
        try:
            code = here(arguments, output).code
        except (SystemExit, KeyboardInterrupt) as stop:  # by a signal after the end of the command
            code = stop.code if isinstance(stop, SystemExit) else 130
        except BaseException:
            with open(output, "a") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    return process


def end_of(process: int, output: Path) -> Ended:
    """Wait for the end of a process."""
    _, status = os.waitpid(process, 0)
    return Ended(
        os.waitstatus_to_exitcode(status),
        output.read_text(errors="replace") if output.exists() else "",
    )


def _command(arguments: list[str]) -> int:
    """Run ``longtail ARGUMENTS`` here; return its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, cli._stop)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        sys.argv = ["longtail", *arguments]
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:  # before or after the command itself: Python ends like this
        return 130
    raise AssertionError("main came back")


@contextmanager
def as_a_process(output: Path):
    """Let messages go to the file ``said`` in the body, and put back what a command changes in a
    process.
    """
    streams = (sys.stdout, sys.stderr)
    argv = sys.argv
    handlers = list(logging.root.handlers)
    log = logging.getLogger("longtail")
    on_signals = [(number, signal.getsignal(number)) for number in _STOPS]
    level = log.level
    with open(output, "w") as file:
        try:
            sys.stdout = sys.stderr = file
            logging.root.handlers.clear()
            yield
        finally:
            (sys.stdout, sys.stderr) = streams
            sys.argv = argv
            logging.root.handlers[:] = handlers
            log.setLevel(level)
            reporting.show_on(None)
            for number, handler in on_signals:
                signal.signal(number, handler)


def left_behind(model: Path) -> list[str]:
    """Return what stands beside a model that is neither it nor its run log."""
    ours = {model.name, f"{model.name}.run.jsonl", "said"}
    names = (path.name for path in model.parent.iterdir())
    return [
        name
        for name in names
        if name.startswith((f"{model.name}.", f".{model.name}.")) and name not in ours
    ]
