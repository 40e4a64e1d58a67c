"""No model runs code, writes, asks the network or reads the files of others: seen by Python's own
audit hook.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden_models import NAMES, unpack_all

pytest.importorskip("torch")
pytest.importorskip("transformers")


PLANTED = {
    "pickle": "pickle.find_class",
    "exec": "exec",
    "compile": "compile",
    "import": "import ('xml.dom.minidom'",
    "subprocess": "subprocess.Popen",
    "system": "os.system",
    "socket": "socket.__new__",
    "name": "socket.getaddrinfo",
    "library": "ctypes.dlopen",
    "write": "write ",
    "append": "write ",
    "remove": "os.remove",
    "rename": "os.rename",
    "mkdir": "os.mkdir",
    "temporary": "tempfile.mkdtemp",
    "read": "read /etc/hostname",
}


def test_nothing_but_the_folder_is_read(tmp_path):
    """One test of all, in one process: the hook stays to the end of it, and libraries take long to
    import.
    """
    warm = unpack_all(tmp_path / "warm")
    cold = tmp_path / "cold"
    shutil.copytree(warm, cold)
    command = [
        sys.executable,
        str(Path(__file__).with_name("audited_loading.py")),
        str(warm),
        str(cold),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    noticed = json.loads(done.stdout)
    assert noticed["models"] == {name: [] for name in NAMES}
    assert noticed["planted"].keys() == PLANTED.keys()
    for name, event in PLANTED.items():  # the hook sees what it is for
        assert any(result.startswith(event) for result in noticed["planted"][name]), noticed[
            "planted"
        ][name]
