"""What a training run will take, told before it begins: time, memory and the size of the model."""

from __future__ import annotations

from longtail.forecast.memory import check_memory
from longtail.forecast.training import Forecast, forecast

__all__ = ["Forecast", "check_memory", "forecast"]
