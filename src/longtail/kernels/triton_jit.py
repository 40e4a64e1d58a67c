"""The one way GPU kernels are compiled."""

from __future__ import annotations

from typing import Any

import triton

__all__ = ["compiled"]

VARYING = ("first", "n_documents", "n_losses", "n_pairs", "n_positives", "n_slots", "seed")


def compiled(function: Any) -> Any:
    """Compiles once for all values of the arguments that vary, where Triton would do it anew for 1
    and multiples of 16.

    Arguments are annotated `tl.tensor` even where they are scalars: Triton reads annotations, and
    takes no `Any`."""
    return triton.jit(function, do_not_specialize=VARYING)
