"""What tells one encoder from another between runs."""

from __future__ import annotations

import pytest

from longtail.features.encoder_folder import POOLING
from longtail.methods import configure
from longtail.steps.networks import encoder_hash


class TestEncoderHash:
    @pytest.fixture
    def folder(self, tmp_path):
        for name in ("config.json", "model.safetensors", "tokenizer.json", POOLING, "README.md"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        return tmp_path

    def of(self, folder):
        return encoder_hash(configure("cascadexml", None, {"encoder": {"name": str(folder)}}))

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", POOLING])
    def test_another_file(self, folder, name):
        before = self.of(folder)
        (folder / name).write_text("another")
        assert self.of(folder) != before

    @pytest.mark.parametrize("name", ["tokenizer.json", POOLING])
    def test_a_file_less(self, folder, name):
        before = self.of(folder)
        (folder / name).unlink()
        assert self.of(folder) != before

    def test_words_about_it_do_not_count(self, folder):
        before = self.of(folder)
        (folder / "README.md").write_text("another")
        assert self.of(folder) == before

    def test_vectors_of_words(self, tmp_path):
        file, learned = tmp_path / "vectors.txt", configure("astec", None, {"encoder": {"name": "learned"}})
        file.write_text("a 1 2")
        config = configure("astec", None, {"encoder": {"name": str(file)}})
        before = encoder_hash(config)
        file.write_text("a 1 3")
        assert len({before, encoder_hash(config), encoder_hash(learned)}) == 3
