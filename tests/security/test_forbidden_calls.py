"""The gate of ``make lint`` refuses calls that run what a file says, however they are spelt, and
lets others pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import forbidden_calls  # noqa: E402

FILE = "src/longtail/planted.py"

FORBIDDEN = [
    "import pickle",
    "import pickle as safe",
    "from pickle import loads",
    "import marshal, json",
    "import shelve",
    "import dill",
    "import cloudpickle",
    "from joblib import load",
    "import torch\ntorch.load('x')",
    "import torch as t\nt.load('x', weights_only=True)",
    "from torch import load as get\nget('x')",
    "import torch\nread = torch.load",
    "import torch.jit\ntorch.jit.load('x')",
    "import numpy as np\nnp.load('x', allow_pickle=True)",
    "import numpy as np\nnp.load('x')",
    "import numpy as np\nallowed = True\nnp.load('x', allow_pickle=allowed)",
    "import numpy as np\nnp.lib.format.read_array('x')",
    "import yaml\nyaml.load('x', Loader=yaml.Loader)",
    "from yaml import unsafe_load",
    "eval('1')",
    "exec('1')",
    "run = eval",
    "compile('1', 'x', 'eval')",
    "import builtins\nbuiltins.eval('1')",
    "__import__('os')",
    "import os\nos.system('true')",
    "from os import popen",
    "import os\nos.execv('true', [])",
    "import os\nos.spawnl(0, 'true')",
    "import os\nos.posix_spawn('true', [], {})",
    "import subprocess\nsubprocess.run(['true'])",
    "import ctypes\nctypes.CDLL('x.so')",
    "from importlib import import_module\nimport_module('x')",
    "import tempfile\ntempfile.mktemp()",
    "import runpy",
    "from transformers import AutoModel\nAutoModel.from_pretrained('x')",
    "from transformers import AutoModel\nAutoModel.from_pretrained('x', local_files_only=True, trust_remote_code=True)",
    "from transformers import AutoModel\nAutoModel.from_pretrained('x', trust_remote_code=False)",
    "anything(trust_remote_code=1)",
    "anything(shell=True)",
    "from huggingface_hub import snapshot_download",
]
ALLOWED = [
    "import json\njson.loads('1')",
    "model.eval()",
    "import re\nre.compile('x')",
    "compile: bool = False",
    "encoder.model.compile()",
    "import numpy as np\nnp.load('x', allow_pickle=False)",
    "import os\nos.replace('x', 'y')",
    "code = 1\nprint(code)",
    "from transformers import AutoModel as A\nA.from_pretrained('x', local_files_only=True, trust_remote_code=False)",
]


@pytest.mark.parametrize("source", FORBIDDEN)
def test_refused(source):
    assert list(forbidden_calls.forbidden(source, FILE))


@pytest.mark.parametrize("source", ALLOWED)
def test_allowed(source):
    assert list(forbidden_calls.forbidden(source, FILE)) == []


def test_the_repository_has_none(capsys):
    places = [str(ROOT / name) for name in ("src", "scripts", "benchmarks")]
    assert forbidden_calls.main(places) == 0, capsys.readouterr().out


def test_a_planted_one_is_named_with_its_line(tmp_path, capsys):
    file = tmp_path / "planted.py"
    file.write_text("import os\n\nos.system('true')\n")
    assert forbidden_calls.main([str(tmp_path)]) == 1
    assert (
        capsys.readouterr().out
        == f"{file}:3: os.system is forbidden: use subprocess.run with a list\n"
    )


@pytest.mark.parametrize(("file", "name"), forbidden_calls.ALLOWED)
def test_every_exception_is_needed(file, name):
    source = (ROOT / file).read_text()
    assert list(forbidden_calls.forbidden(source, file)) == []
    assert name in {result.rpartition(".")[0] if result.count(".") > name.count(".") else result
                    for _, result, _ in forbidden_calls.forbidden(source, "src/elsewhere.py")}  # fmt: skip
