"""Print the deepest chain of Longtail functions while a model is trained and while it predicts.

    python scripts/call_depth.py

Trains xr-linear on the bundled sample. Counted are the frames of files under src/longtail, from
``Longtail(...).fit(...)`` and ``lt.load(...).predict([...])`` down; compiled kernels have none."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import longtail as lt

_PACKAGE = str(Path(lt.__file__).parent) + "/"


class DeepestChain:
    """The deepest chain of functions of the package in any thread."""

    def __init__(self) -> None:
        self.chain: list[str] = []

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
        if len(chain) > len(self.chain):
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


def main() -> None:
    """Train, save, load and predict; print both chains."""
    train, test = lt.sample()
    texts = list(test.texts)[:10]
    deepest = DeepestChain()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        lt.Longtail("xr-linear").fit(train).save(path)  # compiles and imports
        lt.load(path).predict(texts)
        _print("train", deepest.measure(lambda: lt.Longtail("xr-linear", threads=1).fit(train)))
        model = lt.load(path, threads=1)
        _print("predict", deepest.measure(lambda: model.predict(texts)))


def _print(name: str, chain: list[str]) -> None:
    print(f"{name}: {len(chain)} frames")
    for depth, function in enumerate(chain, 1):
        print(f"  {depth:2} {function}")


if __name__ == "__main__":
    main()
