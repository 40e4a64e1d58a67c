"""Compilation of CPU kernels: lazily, without the GIL, cached on disk where a folder is writable.

Numba has no public way to do two things that are done here. Its cache does not notice that an
imported kernel has changed, and may mix up the overloads that two processes store at once
(:func:`_bind_cache`); and it counts references to arrays in kernels that make none
(:func:`borrowing`). Both set private attributes, which are looked for first: without them kernels
are not cached, or slower. ``pyproject.toml`` bounds numba by the newest version that they were
checked with, and ``tests/unit/kernels/test_jit.py`` names the attribute that a version lacks."""

from __future__ import annotations

import glob
import hashlib
import logging
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite.binding import get_host_cpu_name
from numba.core import event
from numba.core.cpu import CPUTargetOptions
from numba.extending import overload
from numpy.typing import NDArray

from longtail.kernels.compilation import CompilationRecord, Observer, observer

__all__ = [
    "borrowing",
    "chosen_by_type",
    "compilation_record",
    "compiles",
    "kernel",
    "read_only",
]

Kernel = Callable[..., Any]
F = TypeVar("F", bound=Kernel)
log = logging.getLogger("longtail")
_FOLDER = Path(__file__).parent
_NEWEST_KNOWN = "0.68"  # whose cache has the private attributes, as that of 0.60
# private attributes of numba's cache files that _bind_cache and _save_overload use
_CACHE_ATTRIBUTES = (
    "_cache_path",
    "_data_name_pattern",
    "_dump",
    "_load_index",
    "_save_data",
    "_save_index",
    "_source_stamp",
)
_DIGEST_LENGTH = 16
# inlined, because a call would pass each field of a tuple of arrays
_BORROWING = {"_nrt": False, "forceinline": True}
_ANNOUNCEMENT = (
    "compiling kernels, once on this machine: up to a minute or two for a method; "
    "`longtail doctor --compile` compiles those of all methods at once"
)


def kernel(function: F) -> F:
    """Compile ``function`` on its first call, for threads of the caller: results never depend on
    their number.
    """
    try:
        compiled: Any = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no writable cache folder
        _warn_uncached()
        compiled = numba.njit(nogil=True)(function)
    else:
        # a function of Python, where NUMBA_DISABLE_JIT says so, has no cache
        if hasattr(compiled, "_cache") and not _bind_cache(compiled._cache, function):
            compiled = numba.njit(nogil=True)(function)
    typed: F = compiled
    return typed


def borrowing(function: F) -> F:
    """Compile a kernel that makes no arrays into its callers, without counting references to
    arrays.

    Numba's options for it are private: where a version lacks them, references are counted, which
    takes longer."""
    compiled: Any = kernel(function)
    options = getattr(compiled, "targetoptions", None)  # a plain function has none
    if options is not None:
        options.update(
            {name: value for name, value in _BORROWING.items() if hasattr(CPUTargetOptions, name)}
        )
    typed: F = compiled
    return typed


def chosen_by_type(kernels: Mapping[type, Kernel]) -> Kernel:
    """Return a function, for kernels and for Python, that calls the kernel of a type.

    Args:
        kernels: the kernel of each NamedTuple that the first argument may be; all take the same
            arguments.
    """

    def call(first: Any, *others: Any) -> Any:
        return kernels[type(first)](first, *others)

    @overload(call)
    def compiled(first: Any, *others: Any) -> Any:
        chosen = kernels.get(getattr(first, "instance_class", type(None)))
        if chosen is None:
            return None

        def call_chosen(first: Any, *others: Any) -> Any:
            return chosen(first, *others)

        return call_chosen

    return call


def _bind_cache(cached: Any, function: Callable[..., Any]) -> bool:
    """Let the cache of a kernel notice changes of imported kernels, serve several processes at
    once, and survive a full disk.

    Numba has no public way to do so. Return False for a version without the private attributes: its
    cache would not notice that an imported kernel has changed, and must not be used."""
    files: Any = getattr(cached, "_cache_file", None)
    if not all(hasattr(files, name) for name in _CACHE_ATTRIBUTES):
        _warn_unknown_cache()
        return False
    if not hasattr(cached, "save_overload"):
        _warn_unknown_cache()
        return False
    cached.save_overload = _tolerating_full_disk(cached.save_overload)
    files.save = partial(_save_overload, files)
    files._source_stamp = (files._source_stamp, _sources(function.__code__.co_filename))
    return True


def _save_overload(files: Any, key: Any, data: Any) -> None:
    """Store a compiled overload under a name made from its content, then enter it in the index.

    Numba numbers the files of a kernel by its index and writes the index first. Two processes that
    compile different overloads at once then choose the same number, and the index leads to code of
    other argument types, whose call ends the process. A name made from the content is never that
    of other code: of two indexes written at once the later one holds, and an overload that is
    missing there is compiled again.

    Args:
        files: numba's index and data files of one kernel.
        key: signature, target and digest of the function.
        data: the compiled overload.
    """
    digest = hashlib.sha256(files._dump(data)).hexdigest()[:_DIGEST_LENGTH]
    name = files._data_name_pattern.replace("{number:d}", digest)
    files._save_data(name, data)
    overloads = files._load_index()
    if not overloads:  # of another version of the source, if there are any
        _remove_data(files, name)
    overloads[key] = name
    files._save_index(overloads)


def _remove_data(files: Any, name: str) -> None:
    """Remove the data files of a kernel but ``name``; a process that misses one compiles again."""
    prefix, _, suffix = files._data_name_pattern.partition("{number:d}")
    for path in Path(files._cache_path).glob(f"{glob.escape(prefix)}*{suffix}"):
        if path.name != name:
            path.unlink(missing_ok=True)


@cache  # one warning per process
def _warn_unknown_cache() -> None:
    warnings.warn(
        f"numba {numba.__version__} keeps compiled kernels in another way than expected: they are "
        f"compiled anew in every process; install numba {_NEWEST_KNOWN}, with which they are kept",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _sources(file: str) -> frozenset[bytes]:
    """Return digests of a file and of all files of kernels that it imports; numba looks at the
    first alone.
    """
    try:
        source = Path(file).read_bytes()
    except OSError:  # a frozen program has none
        return frozenset()
    imported = re.findall(rb"\nfrom longtail\.kernels\.(\w+) import", source)
    others = (_sources(str(_FOLDER / f"{name.decode()}.py")) for name in imported)
    return frozenset([hashlib.sha256(source).digest()]).union(*others)


def _tolerating_full_disk(save: Callable[..., None]) -> Callable[..., None]:
    """Return numba's ``save`` for a disk that may be full: the compiled kernel is used all the
    same.
    """

    def saved(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError:
            _warn_uncached()

    return saved


@cache  # one warning per process, whatever the warning filters do
def _warn_uncached() -> None:
    warnings.warn(
        "no writable folder for compiled kernels: they are compiled anew in every process; "
        "set NUMBA_CACHE_DIR to a writable folder",
        RuntimeWarning,
        stacklevel=2,
    )


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that may not be written: arrays in memory and in files have one type, kernels
    are compiled once.
    """
    view = np.asarray(array).view()  # numba knows no memmap
    view.setflags(write=False)
    return view


class _Announcer(event.Listener):
    """Announces the first compilation on a machine, and calls the observer around each; a cache hit
    is none.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._observer: Observer | None = None
        self._announced = False

    def on_start(self, event: Any) -> None:
        """Begin a compilation, which may be one inside another; numba does one at a time."""
        self._depth += 1
        if self._depth > 1:
            return
        self._announce()
        self._observer = observer()
        if self._observer is not None:
            self._observer.start(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: Any) -> None:
        """End a compilation."""
        self._depth -= 1
        if self._observer is None:
            return
        self._observer.step()
        if self._depth == 0:
            self._observer.finish()

    def _announce(self) -> None:
        if self._announced:
            return
        self._announced = True
        record = compilation_record()
        if not record.announced():
            log.info("%s", _ANNOUNCEMENT)
            record.add()


@kernel
def _nothing() -> None:
    """Does nothing; its folder of compiled kernels is that of all."""


@cache
def compilation_record() -> CompilationRecord:
    """Return the record of the folder in which this process keeps compiled kernels."""
    kept = getattr(_nothing, "_cache", None)
    folder = getattr(kept, "cache_path", None)
    if folder is not None:
        folder = Path(folder)
    return CompilationRecord(folder, f"numba {numba.__version__} {get_host_cpu_name()}")


def compiles() -> bool:
    """Return whether kernels are compiled at all, which NUMBA_DISABLE_JIT turns off."""
    return hasattr(_nothing, "signatures")


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
