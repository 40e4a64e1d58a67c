"""Settings that are refused before any document is read, and how often each check runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import longtail as lt
from longtail import checks, estimator, training_run
from longtail.checks import check_encoder
from longtail.cli import model_commands
from longtail.config import Config
from longtail.errors import ConfigError, UsageError
from longtail.features.encoder_search import search_encoders_in
from longtail.methods import configure
from longtail.rankers.tree import TreeFamily
from longtail.training_run import train_to_folder

LEVELS = {"cascade": {"levels": [16, 64], "layers": [[3, 4], [5], [6]]}}


def test_layers_beyond_the_encoder_are_refused() -> None:
    config = configure("cascadexml", None, {"cascade": {"layers": [[9, 10], [11], [12]]}})
    with pytest.raises(
        ConfigError, match=r"cascade\.layers: found 12; expected at most 6, the encoder's depth"
    ):
        check_encoder(config, "cpu")


@pytest.mark.parametrize(
    ("setting", "value"), [("dropout", [0.1, 0.2]), ("shortlist", [8]), ("layers", [[5], [6]])]
)
def test_settings_for_another_number_of_levels_are_refused(
    setting: str, value: list[object]
) -> None:
    config = configure("cascadexml", None, LEVELS, {"cascade": {setting: value}})
    with pytest.raises(
        ConfigError, match=rf"cascade\.{setting}: found settings for 2 levels; expected 3"
    ):
        check_encoder(config, "cpu")


@pytest.mark.parametrize("setting", ["epochs", "steps"])
def test_lengths_for_another_number_of_tuned_levels_are_refused(setting: str) -> None:
    recursive = {"levels": [16, 256], "finest": "labels", setting: [5, 6]}
    config = configure("xr-transformer", None, {"recursive": recursive})
    with pytest.raises(
        ConfigError, match=rf"recursive\.{setting}: found numbers for 2 levels; expected 3"
    ):
        check_encoder(config, "cpu")


def test_levels_that_fit_are_accepted() -> None:
    fitting = {"cascade": {"dropout": [0.1, 0.2, 0.3], "shortlist": [8, 8]}}
    check_encoder(configure("cascadexml", None, LEVELS, fitting), "cpu")


def test_a_preset_whose_encoder_is_missing_is_refused(tmp_path: Path) -> None:
    config = configure("cascadexml", None, {"encoder": {"name": "bert-base-uncased"}})
    with (
        search_encoders_in(tmp_path),
        pytest.raises(UsageError, match="'bert-base-uncased': found no such folder"),
    ):
        check_encoder(config, "cpu")


def _train_in_python(documents: lt.Dataset, folder: Path) -> None:
    lt.Longtail("cascadexml").fit(documents)


def _train_to_folder(documents: lt.Dataset, folder: Path) -> None:
    train_to_folder(documents, folder / "model", configure("cascadexml"))


def _train_by_command(documents: lt.Dataset, folder: Path) -> None:
    lt.write(documents, folder / "train.jsonl")
    model_commands.train(str(folder / "train.jsonl"), folder / "model", method="cascadexml")


@pytest.mark.parametrize("train", [_train_in_python, _train_to_folder, _train_by_command])
def test_each_check_runs_once(
    train: Callable[[lt.Dataset, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def check_encoder(config: Config, device: str) -> None:
        calls.append("encoder")

    def check(self: TreeFamily, config: Config, documents: lt.Dataset, parents: object) -> None:
        calls.append("data")

    def begin_training(*arguments: object, **options: object) -> None:
        raise UsageError("all is checked")

    monkeypatch.setattr(checks, "check_encoder", check_encoder)
    monkeypatch.setattr(TreeFamily, "check", check)
    monkeypatch.setattr(estimator, "train", begin_training)
    monkeypatch.setattr(training_run, "forecast", begin_training)
    with pytest.raises(UsageError, match="all is checked"):
        train(lt.Dataset.of(["red apple", "green pear"] * 9, [["a"], ["b"]] * 9), tmp_path)
    assert calls == ["encoder", "data"]
