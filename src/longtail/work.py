"""Stages of one training run as arrays: made, or taken over from a run that was interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from longtail.store import Stages

__all__ = ["Work"]

log = logging.getLogger("longtail")

_FILE = "arrays.safetensors"


@dataclass(frozen=True)
class Work:
    """Where finished stages are kept, if anywhere; ``input_hash`` stands for all that they are made from."""

    stages: Stages | None
    input_hash: str

    def arrays(self, name: str, make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the arrays of the stage ``name``, and keep them when they had to be made."""
        if self.stages is None:
            return make()
        folder = self.stages.get(name, self.input_hash)
        if folder is not None:
            log.info("stage %s: taken over from the interrupted run", name)
            return {key: np.array(array) for key, array in folder.arrays(_FILE).items()}  # kernels want them writable
        arrays = make()
        with self.stages.write(name, self.input_hash) as writer:
            writer.write_arrays(_FILE, arrays)
        return arrays
