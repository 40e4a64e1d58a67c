"""Kernels chosen by the type of their first argument, when their caller is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numba.extending import overload

__all__ = ["chosen_by_type"]

Kernel = Callable[..., Any]


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
