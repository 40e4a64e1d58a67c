"""What a training run will take, told before it begins: time, memory and the size of the model."""

from __future__ import annotations

from longtail.forecast.compilation import compilation_kernels, note_compiled
from longtail.forecast.memory import check_memory
from longtail.forecast.sizes import DataSizes, PublishedDataset
from longtail.forecast.stages import StageMemory
from longtail.forecast.training import Forecast, forecast, forecast_of_sizes, published_forecast

__all__ = [
    "DataSizes",
    "Forecast",
    "PublishedDataset",
    "StageMemory",
    "check_memory",
    "compilation_kernels",
    "forecast",
    "forecast_of_sizes",
    "note_compiled",
    "published_forecast",
]
