"""What follows training is done by one process, on its GPU or, where that is too small, on the CPU."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from longtail.networks.device import in_one_process
from longtail.steps.process_group import ProcessGroup, current_group, use_group


class Two(ProcessGroup):
    size = 2


class TestInOneProcess:
    def test_the_group_is_one_process(self):
        with use_group(Two()):
            assert in_one_process(lambda: current_group().size, []) == 1
            assert current_group().size == 2

    def test_on_the_cpu_where_memory_does_not_suffice(self, caplog):
        encoders = [nn.Linear(2, 2, device="meta"), nn.Linear(2, 2)]
        moved = []
        for encoder in encoders:
            encoder.cpu = lambda encoder=encoder: moved.append(encoder)

        def make():
            if not moved:
                raise torch.OutOfMemoryError
            return current_group().size

        with caplog.at_level(logging.WARNING, "longtail"), use_group(Two()):
            assert in_one_process(make, encoders) == 1
        assert moved == encoders
        assert "do not fit on one GPU: the rest is done on the CPU" in caplog.text

    def test_a_second_failure_is_raised(self):
        def make():
            raise torch.OutOfMemoryError

        with pytest.raises(torch.OutOfMemoryError):
            in_one_process(make, [])
