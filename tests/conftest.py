"""Tests that hold on a slow machine too: hypothesis without the clock, and in CI without chance."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "longtail", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("longtail")
