"""Loads, predicts and explains with every model under an audit hook, which cannot be taken off
again: a script.

python audited_loading.py WARM COLD: both folders hold the same model folders. Those of WARM are
used first, without the hook, so that libraries import and kernels are compiled; then come those of
COLD, whose files have not been seen. Prints JSON: of each model, and of each planted call, what was
noticed.
"""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import ctypes
import json
import pickle
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import longtail as lt

TEXT = "perl module for a mail server with documentation"

# Whatever changes the machine, starts or asks something else, or makes code of data.
REFUSED = {
    *(
        "exec",
        "compile",
        "import",
        "code.__new__",
        "function.__new__",
        "pickle.find_class",
        "marshal.loads",
    ),
    *(
        "marshal.load",
        "cpython.run_command",
        "cpython.run_file",
        "sys.addaudithook",
        "sys.setprofile",
        "sys.settrace",
    ),
    *(
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.kill",
    ),
    *(
        "os.remove",
        "os.rename",
        "os.mkdir",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
        "os.chown",
    ),
    *(
        "os.utime",
        "os.putenv",
        "os.unsetenv",
        "os.setxattr",
        "os.chdir",
        "ctypes.dlopen",
        "urllib.Request",
    ),
    *(
        "shutil.copyfile",
        "shutil.move",
        "shutil.rmtree",
        "tempfile.mkstemp",
        "tempfile.mkdtemp",
        "webbrowser.open",
    ),
    *("ftplib.connect", "http.client.connect", "smtplib.connect", "pty.spawn", "mmap.resize"),
}
HARMLESS = {"/proc/mounts"}  # where transformers looks whether weights lie on a network's disk
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

noticed: list[str] | None = None  # nothing is noticed meanwhile
readable: Path = Path()  # the model folder


def hook(event: str, arguments: tuple[object, ...]) -> None:
    """Notice what no model may lead to, among it to read files of others."""
    if noticed is None:
        return
    if event in REFUSED or event.startswith("socket."):
        noticed.append(f"{event} {arguments}"[:300])
    elif event == "open":
        path, _, flags = arguments
        writes = isinstance(flags, int) and bool(flags & WRITING)
        if isinstance(path, int) or path in HARMLESS:
            inside = True
        else:
            absolute = os.path.abspath(path)  # type: ignore[call-overload]  # noqa: PTH100
            inside = Path(absolute).is_relative_to(readable)
        if writes or not inside:
            noticed.append(f"{'write' if writes else 'read'} {path}"[:300])


def watched(path: Path, work: Callable[[], object]) -> list[str]:
    """Return what was noticed during some work that may read ``place``."""
    global noticed, readable
    readable = path.resolve()
    noticed = []
    try:
        work()
    except Exception as error:
        noticed.append(f"failed: {type(error).__name__}: {error}")
    finally:
        result, noticed = noticed, None
    return result


def use(path: Path) -> None:
    """Load a model and do with it what can be done."""
    model = lt.load(path, device="cpu")
    model.predict([TEXT, "", "\u1e9e"], 5)
    model.predict([TEXT], 5)
    model.explain(TEXT, label=model.model.labels.ids[0])


class Evil:
    """What a pickle can do."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.getpid, ()


PICKLED = pickle.dumps(Evil())
PLANTED: dict[str, Callable[[Path], object]] = {
    "pickle": lambda place: pickle.loads(PICKLED),  # noqa: S301
    "exec": lambda place: exec("1 + 1"),
    "compile": lambda place: compile("1", "x", "eval"),
    "import": lambda place: __import__("xml.dom.minidom"),
    "subprocess": lambda place: subprocess.run(["true"], check=False),
    "system": lambda place: os.system("true"),
    "socket": lambda place: socket.socket().close(),
    "name": lambda place: socket.getaddrinfo("localhost", 1),
    "library": lambda place: ctypes.CDLL("libm.so.6"),
    "write": lambda place: (place / "written").write_text("x"),
    "append": lambda place: open(place / "manifest.json", "ab").close(),
    "remove": lambda place: (place / "README.md").unlink(),
    "rename": lambda place: (place / "config.json").rename(place / "other.json"),
    "mkdir": lambda place: (place / "folder").mkdir(),
    "temporary": lambda place: tempfile.mkdtemp(dir=place),
    "read": lambda place: Path("/etc/hostname").read_bytes(),
}


def main(warm: Path, cold: Path) -> None:
    """Use all models twice, and try whether the hook sees what it is for."""
    warnings.simplefilter("ignore")
    names = sorted(path.name for path in warm.iterdir())
    for name in names:
        use(warm / name)
    sys.addaudithook(hook)
    models = {name: watched(cold / name, lambda name=name: use(cold / name)) for name in names}
    planted = {
        name: watched(cold / names[0], lambda act=act: act(cold / names[0]))
        for name, act in PLANTED.items()
    }
    print(json.dumps({"models": models, "planted": planted}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
