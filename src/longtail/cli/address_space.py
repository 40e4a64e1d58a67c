"""A limit of the address space (``ulimit -v``): compiled libraries hang or abort where it is small."""

from __future__ import annotations

import os
import sys

from longtail.errors import LongtailError

__all__ = ["check_address_space", "spare_address_space"]

_LEAST = 700 << 20  # bytes; below, OpenBLAS waits for ever, or LLVM aborts
_SMALL = 8 << 30  # bytes; below, buffers for the threads of OpenBLAS count


def spare_address_space() -> None:
    """Let OpenBLAS have one thread where little address space is left; it has buffers for each,
    which it waits for.
    """
    limit = _limit()
    if limit is not None and limit < _SMALL:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def check_address_space() -> None:
    """Refuse to start where compiled libraries cannot be loaded."""
    limit = _limit()
    if limit is not None and limit < _LEAST:
        raise LongtailError(
            f"ulimit -v: found {limit >> 10:,} kB of address space; expected at least {_LEAST >> 10:,} kB, "
            "which compiled libraries map; raise the limit, or limit the memory by a container"
        )


def _limit() -> int | None:
    """Return the bytes of address space that this process may have, or None for any number."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    return limit
