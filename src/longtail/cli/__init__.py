"""The command line: a function per verb. Results go to stdout, everything else to stderr."""

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
    data_commands,
    derivation_commands,
    inspection_commands,
    measure_commands,
    model_commands,
    serve_commands,
    study_commands,
)
from longtail.cli.options import app, print_note
from longtail.errors import DataError, LongtailError, interruption

__all__ = [
    "about_commands",
    "app",
    "data_commands",
    "derivation_commands",
    "inspection_commands",
    "main",
    "measure_commands",
    "model_commands",
    "serve_commands",
    "study_commands",
]

_ADVICE = {  # for errors of the operating system
    errno.ENOSPC: "free some space there, or write elsewhere",
    errno.EDQUOT: "free some space there, or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: "check its permissions, or give another path",
    errno.EPERM: "check its permissions, or give another path",
    errno.EIO: "check the disk",
}

_LEAST_ADDRESS_SPACE = 700 << 20  # bytes; below, OpenBLAS waits for ever, or LLVM aborts
_SMALL_ADDRESS_SPACE = 8 << 30  # bytes; below, buffers for the threads of OpenBLAS count

_RESEND_SECONDS = 0.01  # until a lost signal is sent again

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
    from longtail.cli.terminal import show_progress

    _check_address_space()
    show_progress(quiet)


def _spare_address_space() -> None:
    """Restrict OpenBLAS to one thread if address space is small: each thread waits for a buffer."""
    limit = _address_space()
    if limit is not None and limit < _SMALL_ADDRESS_SPACE:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _check_address_space() -> None:
    """Refuse to start if compiled libraries cannot be loaded."""
    limit = _address_space()
    if limit is not None and limit < _LEAST_ADDRESS_SPACE:
        raise LongtailError(
            f"ulimit -v: found {limit >> 10:,} kB of address space; "
            f"expected at least {_LEAST_ADDRESS_SPACE >> 10:,} kB, which compiled libraries map; "
            "raise the limit, or limit the memory by a container"
        )


def _address_space() -> int | None:
    """Return the limit of this process's address space in bytes; None: unlimited."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    return limit


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _send_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception was raised in a finaliser, where Python ignores it."""
    error = unraisable.exc_value
    number = int(signal.SIGINT)
    if isinstance(error, SystemExit):
        number = int(error.code or 0) - 128
    elif not isinstance(error, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    threading.Timer(_RESEND_SECONDS, os.kill, (os.getpid(), number)).start()


def _set_encoding() -> None:
    """Write UTF-8 to pipes in every locale; escape characters that a terminal cannot show."""
    if isinstance(sys.stdout, TextIOWrapper):
        encoding = "utf-8"
        if sys.stdout.isatty():
            encoding = sys.stdout.encoding
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")


def main() -> NoReturn:
    """Run the command line; turn every error into a message and an exit code."""
    signal.signal(signal.SIGTERM, _stop)  # so that `finally` blocks run
    sys.unraisablehook = _send_again
    # torch's threads sleep while waiting: spinning halves the speed of a network on shared cores
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _spare_address_space()
    _set_encoding()
    try:
        app()
    except DataError as error:  # each line begins with file and line, as editors expect
        print_note(str(error))
        sys.exit(error.exit_code)
    except LongtailError as error:
        print_note(f"longtail: {error}")
        sys.exit(error.exit_code)
    except MemoryError:
        print_note("longtail: not enough memory; give less data at a time, or use a larger machine")
        sys.exit(1)
    except SystemError as error:
        stopped = interruption(error)
        if stopped is None:
            raise
        if isinstance(stopped, SystemExit):
            sys.exit(stopped.code)
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        message = f"longtail: {error.filename or 'error'}: {error.strerror or error}"
        if error.errno in _ADVICE:
            message += f"; {_ADVICE[error.errno]}"
        print_note(message)
        sys.exit(1)
    sys.exit(0)
