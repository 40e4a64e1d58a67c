"""Encoders and word vectors are found by name: locally, in folders given for it, and in the cache
of Hugging Face.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from longtail.errors import UsageError
from longtail.features.encoder_folder import encoder_folder, names_folder
from longtail.features.encoder_search import find_encoder, find_word_vectors, search_encoders_in

BERT = "bert-base-uncased"


@pytest.fixture(autouse=True)
def empty_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies in the current folder, and the cache is one that a test may fill."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))


def make_encoder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def cached_encoder(hub: Path, repository: str, commit: str = "0123abcd") -> Path:
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(f"{commit}\n")
    return make_encoder(folder / "snapshots" / commit)


def test_a_name_is_found_in_the_folder_that_holds_it(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / "encoders" / BERT)
    assert find_encoder(BERT) is None
    with search_encoders_in(tmp_path / "encoders"):
        assert encoder_folder(BERT) == encoder
        assert names_folder(BERT)
    assert find_encoder(BERT) is None  # the search ends with the body


def test_the_folder_may_be_the_encoder_itself(tmp_path: Path) -> None:
    encoder = make_encoder(tmp_path / BERT)
    with search_encoders_in(encoder):
        assert find_encoder(BERT) == encoder
        assert find_encoder("roberta-base") is None


@pytest.mark.parametrize(
    "spelling", ["google-bert/bert-base-uncased", "google-bert--bert-base-uncased"]
)
def test_a_name_with_its_owner(tmp_path: Path, spelling: str) -> None:
    encoder = make_encoder(tmp_path / "encoders" / spelling)
    with search_encoders_in(tmp_path / "encoders"):
        assert find_encoder("google-bert/bert-base-uncased") == encoder


def test_a_local_folder_comes_before_those_that_are_searched(tmp_path: Path) -> None:
    make_encoder(tmp_path / "encoders" / BERT)
    make_encoder(Path(BERT))
    with search_encoders_in(tmp_path / "encoders"):
        assert find_encoder(BERT) == Path(BERT)


@pytest.mark.parametrize("repository", [BERT, f"google-bert/{BERT}"])
def test_the_cache_of_hugging_face(tmp_path: Path, repository: str) -> None:
    snapshot = cached_encoder(tmp_path / "huggingface" / "hub", repository)
    assert find_encoder(BERT) == snapshot
    assert find_encoder("roberta-base") is None


def test_a_cache_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = cached_encoder(tmp_path / "hub", "FacebookAI/roberta-base")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_encoder("roberta-base") == snapshot


def test_a_download_that_did_not_end_is_not_found(tmp_path: Path) -> None:
    snapshot = cached_encoder(tmp_path / "huggingface" / "hub", BERT)
    (snapshot.parents[1] / "refs" / "main").write_text("another")
    assert find_encoder(BERT) is None


def test_a_missing_encoder_says_where_was_looked(tmp_path: Path) -> None:
    (tmp_path / "encoders").mkdir()
    with search_encoders_in(tmp_path / "encoders"), pytest.raises(UsageError) as refusal:
        encoder_folder(BERT)
    message = str(refusal.value)
    assert "found no such folder" in message
    assert "--encoder-folder" in message
    assert str(tmp_path / "encoders") in message
    assert "cache of Hugging Face" in message


def test_a_search_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder; expected one that holds encoders"):
        search_encoders_in(tmp_path / "encodres").__enter__()


@pytest.mark.parametrize(
    "file", ["glove.840B.300d", "glove.840B.300d.txt", "glove.840B.300d.txt.gz"]
)
def test_word_vectors_are_found_with_or_without_their_ending(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("")
    assert find_word_vectors("glove.840B.300d") is None
    with search_encoders_in(tmp_path):
        assert find_word_vectors("glove.840B.300d") == tmp_path / file
