"""What a network uses where the settings leave it open: table 9 of CascadeXML, for any size and depth."""

from __future__ import annotations

from math import log2

__all__ = ["documents_at_a_time", "dropouts", "level_layers", "level_widths", "scores_all_labels", "shortlist_sizes"]

_LARGE = 200_000  # labels from which on the papers use three levels above them
_LARGE_WIDTHS, _LARGE_SIZES = (2**10, 2**13, 2**16), (2**10, 2**11, 2**12)  # nodes; shortlists of the levels below
_KEPT = 64
_CPU_DOCUMENTS = 32  # more take memory, 12 GB for 256 of 128 tokens with MiniLM, and gain no time
_DROPOUTS = {2: (0.3, 0.4), 3: (0.3, 0.3, 0.4), 4: (0.2, 0.25, 0.4, 0.5)}


def level_widths(n_labels: int) -> tuple[int, ...]:
    """Return the nodes of each level above the labels: 1/64 and 1/8 of them, or 2¹⁰, 2¹³ and 2¹⁶ if they are many."""
    if n_labels >= _LARGE:
        return _LARGE_WIDTHS
    depth = round(log2(max(n_labels, 2)))
    return tuple(2**power for power in (depth - 6, depth - 3) if power >= 2)


def level_layers(depth: int, n_levels: int) -> tuple[tuple[int, ...], ...]:
    """Return the encoder's layers that each level reads: the last for labels, every ⌊depth/6⌋-th one before it.

    The first level reads two layers, so {5, 6}, 8, 10, 12 of twelve for four levels, and {3, 4}, 5, 6 of six for three.
    """
    step = max(1, depth // 6)
    layers = [max(1, depth - step * (n_levels - 1 - level)) for level in range(n_levels)]
    first = (layers[0] - 1, layers[0]) if n_levels > 1 and layers[0] > 1 else (layers[0],)
    return (first, *((layer,) for layer in layers[1:]))


def shortlist_sizes(widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nodes kept on each level above the labels: 64, or for many labels what table 9's shortlists hold."""
    kept = [_KEPT] * (len(widths) - 1)
    if widths[:-1] == _LARGE_WIDTHS:  # a shortlist is the kept nodes' children
        kept = [round(size * own / below) for size, own, below in zip(_LARGE_SIZES, widths, widths[1:], strict=False)]
    return tuple(max(1, min(k, width)) for k, width in zip(kept, widths[:-1], strict=True))


def dropouts(n_levels: int) -> tuple[float, ...]:
    """Return the dropout before each level's classifiers, rising to the labels'."""
    if n_levels in _DROPOUTS:
        return _DROPOUTS[n_levels]
    return tuple(0.2 + 0.3 * level / max(n_levels - 1, 1) for level in range(n_levels))


def scores_all_labels(last_level: str, n_labels: int) -> bool:
    """Tell whether labels are scored one-vs-all: that costs little beside the encoder as long as they are not many."""
    return last_level == "full" or (last_level == "auto" and n_labels < _LARGE)


def documents_at_a_time(micro_batch: int, batch_size: int, on_gpu: bool) -> int:
    """Return how many documents of a batch are on the device at once: what is set, else all, on a CPU 32 of them."""
    return min(micro_batch or (batch_size if on_gpu else _CPU_DOCUMENTS), batch_size)
