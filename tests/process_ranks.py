"""Processes that form a group (gloo) for tests: a function runs in each of them, and its arrays come back."""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import traceback

import numpy as np

from longtail.scale.training import TorchProcessGroup
from longtail.steps.process_group import use_group

__all__ = ["all_well", "close", "in_ranks"]

_SECONDS = 100


def in_ranks(count, body, folder):
    """Run ``body(ranks)`` in ``count`` processes; return the arrays of each, and how each ended (negative: killed)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            os._exit(as_rank(rank, count, port, body, folder))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    files = [folder / f"rank-{rank}.npz" for rank in range(count)]
    found = [dict(np.load(file)) if file.exists() else {} for file in files]
    for file in files:
        file.unlink(missing_ok=True)
    return found, codes


def as_rank(rank, count, port, body, folder) -> int:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
    }
    os.environ["LOCAL_WORLD_SIZE"] = str(count)
    faulthandler.dump_traceback_later(
        _SECONDS, exit=True
    )  # ranks that wait for each other say where
    try:
        group = TorchProcessGroup.join("cpu")
        with use_group(group):
            np.savez(folder / f"rank-{rank}.npz", **body(group))
            group.leave()
        return 0
    except (SystemExit, KeyboardInterrupt) as ended:
        return ended.code if isinstance(ended, SystemExit) else 130
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()


def all_well(count, body, folder):
    found, codes = in_ranks(count, body, folder)
    assert codes == [0] * count
    return found


def close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)
