"""Tests that hold on a slow machine too: hypothesis without the clock, and in CI without chance."""

import os
import signal

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "longtail",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("longtail")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell's background, where tests of Ctrl-C would wait
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def one_thread():
    """Let torch use one thread: more only get in each other's way in tensors as small as those of
    tests.
    """
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
