"""Print the deepest chain of Longtail functions of commands that train a model and predict with it.

    python scripts/call_depth.py                        # xr-linear, and cascadexml's training
    python scripts/call_depth.py xr-linear --through search/beam.py
    python scripts/call_depth.py cascadexml --python    # Longtail.fit in place of the command

Trains on documents of the bundled sample, networks with the small encoder of the tests. Counted
are the frames of files under src/longtail, from the command or the Python call down; compiled
kernels have none. With ``--through`` only chains through a function whose description holds that
text count."""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

import longtail as lt
from longtail.cli import main as run_command

ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = str(Path(lt.__file__).parent) + "/"
_DOCUMENTS = 300
_WIDTH = 16
_NETWORK = {
    "encoder": {"max_tokens": 24},
    "training": {"epochs": 1, "batch_size": 32, "warmup_epochs": 0.5, "cooldown_epochs": 0.5},
    "tree": {"levels": [8, 32]},
    "cascade": {"layers": [[1], [2], [3]]},
}


class DeepestChain:
    """The deepest chain of functions of the package in any thread."""

    def __init__(self, through: str = "") -> None:
        self.chain: list[str] = []
        self.through = through

    def measure(self, act: Callable[[], object]) -> list[str]:
        """Call ``act`` and return its deepest chain, outermost function first."""
        self.chain = []
        threading.setprofile(self._trace)
        sys.setprofile(self._trace)
        try:
            act()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return self.chain

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_PACKAGE):
            return
        chain = _functions(frame)
        if len(chain) > len(self.chain) and any(self.through in function for function in chain):
            self.chain = chain


def _functions(frame: FrameType | None) -> list[str]:
    """Return the functions of the package that lead to ``frame``, outermost first."""
    chain = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE) and code.co_name != "<module>":
            module = code.co_filename.removeprefix(_PACKAGE)
            chain.append(f"{module}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return chain[::-1]


class Measured:
    """One method on documents of the sample, used by commands or from Python."""

    def __init__(self, method: str, folder: Path, *, by_command: bool) -> None:
        self.method = method
        self.by_command = by_command
        self.model = folder / "model"
        train, test = lt.sample()
        self.documents = train.take(np.arange(_DOCUMENTS))
        self.texts = list(test.texts)[:10]
        self.files = folder / "train.jsonl", folder / "test.jsonl"
        lt.write(self.documents, self.files[0])
        lt.write(test.take(np.arange(len(self.texts))), self.files[1])
        self.settings: dict[str, Any] = {}
        if method != "xr-linear":
            encoder = _small_encoder(folder / "encoder", list(self.documents.texts))
            self.settings = {**_NETWORK, "encoder": {**_NETWORK["encoder"], "name": encoder}}

    def train(self) -> None:
        """Train and write the model."""
        if not self.by_command:
            lt.Longtail(self.method, threads=1, **self.settings).fit(self.documents)
            return
        settings = [
            f"--set={group}.{name}={value}"
            for group, values in self.settings.items()
            for name, value in values.items()
        ]
        output = ["-o", str(self.model), "--force", "--threads", "1"]
        _run("train", str(self.files[0]), "--method", self.method, *output, *settings)

    def predict(self) -> None:
        """Predict with the model that :meth:`train` or :meth:`prepare` wrote."""
        if self.by_command:
            output = ["-o", str(self.model.with_name("predictions.jsonl")), "--threads", "1"]
            _run("predict", str(self.model), str(self.files[1]), *output)
        else:
            self.loaded.predict(self.texts)

    def prepare(self) -> None:
        """Write a model, import and compile what is used, so that neither is measured."""
        model = lt.Longtail(self.method, threads=1, **self.settings).fit(self.documents)
        model.save(self.model, force=True)
        self.loaded = lt.load(self.model, threads=1)
        self.loaded.predict(self.texts)


def _small_encoder(folder: Path, texts: list[str]) -> str:
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny_encoder import write_encoder

    return str(write_encoder(folder, texts, width=_WIDTH, vocabulary=1000))


def _run(*arguments: str) -> None:
    with patch.object(sys, "argv", ["longtail", "--quiet", *arguments]):
        try:
            run_command()
        except SystemExit as end:
            if end.code:
                raise


def main(arguments: list[str]) -> None:
    """Train, save, load and predict; print the chains."""
    parser = argparse.ArgumentParser(description="Depth of calls.")
    parser.add_argument("method", nargs="?", help="xr-linear, or a method with a transformer")
    parser.add_argument("--python", action="store_true", help="call lt.Longtail, not commands")
    parser.add_argument("--through", default="", metavar="TEXT", help="such as search/beam.py")
    options = parser.parse_args(arguments)
    deepest = DeepestChain(options.through)
    for method in [options.method] if options.method else ["xr-linear", "cascadexml"]:
        with tempfile.TemporaryDirectory() as folder:
            measured = Measured(method, Path(folder), by_command=not options.python)
            measured.prepare()
            _print(f"train {method}", deepest.measure(measured.train))
            _print(f"predict {method}", deepest.measure(measured.predict))


def _print(name: str, chain: list[str]) -> None:
    print(f"{name}: {len(chain)} frames")
    for depth, function in enumerate(chain, 1):
        print(f"  {depth:2} {function}")


if __name__ == "__main__":
    main(sys.argv[1:])
