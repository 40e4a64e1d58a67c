"""What tells one encoder from another between runs."""

from __future__ import annotations

import pytest

from longtail.errors import ConfigError
from longtail.features.encoder_folder import POOLING
from longtail.methods import configure, network_of
from longtail.networks.fitting import encoder_hash, with_levels
from longtail.tree.cluster import level_widths


class TestEncoderHash:
    @pytest.fixture
    def folder(self, tmp_path):
        for name in ("config.json", "model.safetensors", "tokenizer.json", POOLING, "README.md"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        return tmp_path

    def of(self, folder):
        return encoder_hash(configure("cascadexml", None, {"encoder": {"name": str(folder)}}))

    @pytest.mark.parametrize(
        "name", ["config.json", "model.safetensors", "tokenizer.json", POOLING]
    )
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
        file = tmp_path / "vectors.txt"
        learned = configure("astec", None, {"encoder": {"name": "learned"}})
        file.write_text("a 1 2")
        config = configure("astec", None, {"encoder": {"name": str(file)}})
        before = encoder_hash(config)
        file.write_text("a 1 3")
        assert len({before, encoder_hash(config), encoder_hash(learned)}) == 3


class TestLevels:
    """The network's tree and the linear classifiers' are two, each with its own levels."""

    def levels(self, method, n_labels=100_000, **settings):
        config = configure(method, None, settings)
        return with_levels(config, n_labels).tree.levels

    @pytest.mark.parametrize("method", ["cascadexml", "lightxml", "inceptionxml", "attentionxml"])
    def test_own_levels_come_before_those_of_the_classifiers(self, method):
        own = {"cascade": {"levels": [64, 512]}}
        other = {"tree": {"levels": [32]}}
        assert self.levels(method, **own) == (64, 512)
        assert self.levels(method, **other) == (32,)
        assert self.levels(method, **own, **other) == (64, 512)

    def test_by_size_where_neither_is_given(self):
        assert self.levels("cascadexml") == (2**11, 2**14)

    def test_of_a_recursive_method_are_its_own(self):
        settings = {"tree": {"levels": [64]}, "recursive": {"levels": [16, 128]}}
        assert self.levels("xr-transformer", **settings) == (16, 128)

    def test_classifiers_have_their_own_tree_beside_it(self):
        config = configure("cascadexml", None, {"cascade": {"levels": [64, 512]}})
        assert config.tree.levels == ()
        assert network_of(config).widths(config, 5000) == (64, 512, 5000)
        assert level_widths(5000, config.tree) == level_widths(5000, configure("xr-linear").tree)

    @pytest.mark.parametrize("kind", ["flat", "unbalanced"])
    def test_a_tree_of_another_kind_has_no_say(self, kind):
        config = configure(
            "cascadexml", None, {"cascade": {"levels": [64]}, "tree": {"kind": kind}}
        )
        assert with_levels(config, 5000).tree.kind == "balanced"

    def test_from_coarse_to_fine(self):
        with pytest.raises(ConfigError, match=r"levels: found \[8, 4\]; expected rising numbers"):
            configure("cascadexml", None, {"cascade": {"levels": [8, 4]}})
