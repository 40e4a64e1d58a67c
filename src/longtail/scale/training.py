"""`longtail train` in one process, in several that torchrun has started, or with workers of Ray."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from longtail.checks import check_settings
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.features.encoder_search import search_encoders_in
from longtail.scale import ranks, ray
from longtail.steps.process_group import ProcessGroup
from longtail.training_run import BEGUN, RunOptions, run_training, take_part

__all__ = ["TrainingJob", "training_job"]


class TrainingJob(NamedTuple):
    """The part of this process in a training run.

    ``run`` trains and writes the model folder; in all but the first process it only takes part in
    the training of the network."""

    group: ProcessGroup
    device: str  # of this process
    ray: str | None  # address of the cluster, if there is one
    run: Callable[[Dataset, Path, Config, RunOptions], object]

    def check(self, config: Config) -> None:
        """Refuse settings that cannot be trained with, or not in this way, before documents are
        read.
        """
        if self.group.size > 1:
            ranks.check_method(config)
        if self.ray is not None:
            ray.check_trainable(config)
        check_settings(config, self.device)

    @contextmanager
    def workers(self, threads: int = 0) -> Iterator[None]:
        """Use the workers of the Ray cluster in the body, if there is one.

        Args:
            threads: workers of a cluster that is started for the body; 0 for all cores.
        """
        # Ray reports lost workers on stdout
        with redirect_stdout(sys.stderr), ray.connected(self.ray, threads):
            yield


@contextmanager
def training_job(
    device: str,
    *,
    sources: Sequence[str | None] = (),
    ray: str | None = None,
    encoder_folder: Path | None = None,
) -> Iterator[TrainingJob]:
    """Join the processes of torchrun, if it has started this one, and yield the part of this one.

    All but the first wait until that one has accepted settings and data.

    Args:
        device: where a network is trained; under torchrun each process has a GPU of its own.
        sources: of the documents; several processes cannot share standard input.
        ray: address of a Ray cluster; None for this machine.
        encoder_folder: where encoders are looked for by name.
    """
    with search_encoders_in(encoder_folder), ranks.joined(device) as (group, local_device):
        if not group.is_first:
            group.wait_for(BEGUN)
        elif group.size > 1:
            ranks.check_sources(*sources)
        run = run_training if group.is_first else take_part
        yield TrainingJob(group, local_device, ray, run)
