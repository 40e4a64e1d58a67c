"""The command line: verbs → functions, no logic. Results on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from longtail import __version__
from longtail.cli import (
    about_commands,
    analysis_commands,
    data_commands,
    ensemble_commands,
    export_commands,
    label_commands,
    measure_commands,
    model_commands,
    reproduce_commands,
    serve_commands,
    tune_commands,
)
from longtail.cli.address_space import check_address_space, spare_address_space
from longtail.cli.options import app, say
from longtail.errors import DataError, LongtailError, interruption

__all__ = [
    "about_commands",
    "analysis_commands",
    "app",
    "data_commands",
    "ensemble_commands",
    "export_commands",
    "label_commands",
    "main",
    "measure_commands",
    "model_commands",
    "reproduce_commands",
    "serve_commands",
    "tune_commands",
]

_WAYS_OUT = {  # of what a disk answers
    errno.ENOSPC: "make room there, or write elsewhere",
    errno.EDQUOT: "make room there, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check its permissions, or give another place",
    errno.EPERM: "check its permissions, or give another place",
    errno.EIO: "check the disk",
}

_SOON = 0.01  # seconds

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]


def _show_version(asked: bool) -> None:
    if asked:
        print(f"longtail {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Give any text the right few of a million labels."""
    from longtail.cli.progress_display import show_progress

    check_address_space()
    show_progress(quiet)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _send_again(unheard: sys.UnraisableHookArgs) -> None:
    """Send a signal once more that came while Python let something go, where what it raises is not
    heard.
    """
    error = unheard.exc_value
    if not isinstance(error, SystemExit | KeyboardInterrupt):
        sys.__unraisablehook__(unheard)
        return
    number = int(error.code or 0) - 128 if isinstance(error, SystemExit) else signal.SIGINT
    threading.Timer(_SOON, os.kill, (os.getpid(), number)).start()


def main() -> NoReturn:
    """Run the command line; every error becomes one message and its exit code."""
    signal.signal(signal.SIGTERM, _stop)  # so that `finally` blocks run
    sys.unraisablehook = _send_again
    # torch's threads sleep while they wait: spinning halves the speed of a network where others use
    # the cores, too
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    spare_address_space()
    # a pipe is UTF-8 in every locale; what a terminal lacks is escaped
    if isinstance(sys.stdout, TextIOWrapper):
        encoding = sys.stdout.encoding if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        app()
    except DataError as error:  # each line begins with the place, for people and editors
        say(str(error))
        sys.exit(error.exit_code)
    except LongtailError as error:
        say(f"longtail: {error}")
        sys.exit(error.exit_code)
    except MemoryError:
        say("longtail: not enough memory; give less data at a time, or use a larger machine")
        sys.exit(1)
    except SystemError as error:
        stopped = interruption(error)
        if stopped is None:
            raise
        sys.exit(stopped.code if isinstance(stopped, SystemExit) else 128 + signal.SIGINT)
    except OSError as error:
        way_out = f"; {_WAYS_OUT[error.errno]}" if error.errno in _WAYS_OUT else ""
        say(f"longtail: {error.filename or 'error'}: {error.strerror or error}{way_out}")
        sys.exit(1)
    sys.exit(0)
