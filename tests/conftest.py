"""Tests that hold on a slow machine too: hypothesis without the clock, and in CI without chance."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does

from hypothesis import HealthCheck, settings

settings.register_profile(
    "longtail", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("longtail")
