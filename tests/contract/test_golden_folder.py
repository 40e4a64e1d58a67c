"""The promise that a model folder of format 1 opens forever, and that today's bytes are those of
then.
"""

from __future__ import annotations

from pathlib import Path

import make_golden as golden
import numpy as np
import safetensors.numpy

from folder_contents import contents
from longtail import store

V1 = Path(__file__).parent / "golden" / "v1"


def test_the_golden_folder_opens_and_holds_the_exact_values():
    folder = store.open_folder(V1)
    assert folder.manifest.format == 1
    assert folder.manifest.producer == "longtail 0.1.0"
    assert (
        folder.manifest.config_hash
        == "401ea838a8b69346e95bcc4f73f39eefc30b71a376041f04d9f8c7762c4e4583"
    )
    assert folder.read_json("config.json", dict) == golden.CONFIG
    assert folder.read_json("metrics.json", dict) == golden.METRICS
    assert folder.read_bytes("labels.jsonl") == golden.LABELS
    assert folder.read_bytes("encoder/vocab.txt") == b"wind\nsolar\n"
    assert folder.read_bytes("encoder/empty") == b""
    assert folder.read_bytes("README.md") == golden.README
    assert folder.array_metadata("ranker.safetensors") == golden.METADATA
    assert folder.array_metadata("tree.safetensors") == {}
    assert len(folder.files) == 8


def test_the_golden_arrays_are_exact_and_the_safetensors_library_reads_the_same():
    folder = store.open_folder(V1)
    for name, expected in [
        ("tree.safetensors", golden.TREE),
        ("ranker.safetensors", golden.RANKER),
    ]:
        for arrays in (folder.arrays(name), safetensors.numpy.load_file(V1 / name)):
            assert arrays.keys() == expected.keys()
            for key, array in arrays.items():
                assert (array.dtype, array.shape) == (expected[key].dtype, expected[key].shape), key
                assert array.tobytes() == expected[key].tobytes(), key
    assert np.signbit(folder.arrays("ranker.safetensors")["bias"])


def test_writing_the_same_content_today_gives_the_same_bytes(tmp_path):
    golden.write_golden(tmp_path / "today")
    then = contents(V1)
    now = contents(tmp_path / "today")
    assert now.keys() == then.keys()
    for name in then:
        assert now[name] == then[name], name


def test_the_golden_folder_is_small():
    assert store.open_folder(V1).size < 10_000
