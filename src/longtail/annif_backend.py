"""Longtail as a backend of Annif, the tool for automated subject indexing: an Annif project with
``backend=longtail``.

Annif knows its backends by a table of its own, without plugins, so this module enters itself there:
by :func:`register`, by ``python -m longtail.annif_backend`` in place of the command ``annif``, and
by :func:`create_app` in place of ``annif:create_app`` for a web server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Config, parse_assignment
from longtail.data.dataset import Dataset
from longtail.data.labels import Label, Labels
from longtail.errors import ConfigError, LongtailError, MissingExtra, UsageError
from longtail.estimator import Longtail, load
from longtail.methods import configure
from longtail.training_run import train_to_folder

try:
    import annif.backend
    from annif.backend.backend import AnnifBackend
    from annif.exception import (
        ConfigurationException,
        NotInitializedException,
        NotSupportedException,
        OperationFailedException,
    )
    from annif.suggestion import SuggestionBatch
except ImportError:
    raise MissingExtra("the backend for Annif", "annif") from None

__all__ = ["LongtailBackend", "create_app", "main", "register"]

_MODEL = "longtail-model"  # folder in the project's data folder


class LongtailBackend(AnnifBackend):  # type: ignore[misc]  # Annif is not typed
    """A model folder in the data folder of a project; labels are the URIs of subjects.

    Parameters are ``method``, ``preset``, ``device``, ``limit``, ``beam_size`` (of suggesting), and
    every setting of Longtail by its dotted path, such as ``tree.branching=32``. Texts are taken as
    they are, without an analyzer."""

    name = "longtail"

    # a class variable, as in Annif's own backends
    DEFAULT_PARAMETERS = {"method": "xr-linear", "preset": "", "device": "auto"}  # noqa: RUF012

    _tagger: Longtail | None = None
    # the number of the subject of each label, -1 where it has none
    _columns: NDArray[np.int64] | None = None

    @property
    def _folder(self) -> Path:
        return Path(self.datadir) / _MODEL

    @property
    def is_trained(self) -> bool:
        """Whether there is a model; stages of a run that was interrupted are none."""
        return (self._folder / "manifest.json").is_file()

    def initialize(self, parallel: bool = False) -> None:
        """Read the model; of several processes each uses one thread."""
        if self._tagger is not None:
            return
        if not self.is_trained:
            raise NotInitializedException(
                f"model {self._folder} not found", backend_id=self.backend_id
            )
        with self._own_errors():
            self._tagger = load(self._folder, 1 if parallel else 0, str(self.params["device"]))
        subjects = [
            self.project.subjects.by_uri(uri, warnings=False)
            for uri in self._tagger.model.labels.ids
        ]
        self._columns = np.array(
            [-1 if subject is None else subject for subject in subjects], np.int64
        )

    def _train(self, corpus: Any, params: dict[str, Any], jobs: int = 0) -> None:
        if corpus == "cached":
            raise NotSupportedException(
                "Training longtail project from cached data not supported.",
                project_id=self.project.project_id,
            )
        documents = self._documents(corpus)
        self.info(f"training on {len(documents)} documents with {documents.n_labels} subjects")
        self._tagger = self._columns = None
        with self._own_errors():
            device = str(params["device"])
            train_to_folder(
                documents, self._folder, _config(params), force=True, threads=jobs, device=device
            )

    def _documents(self, corpus: Any) -> Dataset:
        """Return the documents that have a subject of the vocabulary."""
        subjects = self.project.subjects
        language = self.project.vocab_lang
        kept = [document for document in corpus.documents if document.subject_set]
        if not kept:
            raise NotSupportedException(
                "Cannot train longtail project with no documents",
                project_id=self.project.project_id,
            )
        uris = ([subjects[number].uri for number in document.subject_set] for document in kept)
        documents = Dataset.of((document.text for document in kept), uris)
        known = (subjects[subjects.by_uri(uri)] for uri in documents.labels.ids)
        named = Labels.of(
            Label(subject.uri, (subject.labels or {}).get(language) or "", uri=subject.uri)
            for subject in known
        )
        return replace(documents, labels=named)

    def _suggest_batch(self, documents: list[Any], params: dict[str, Any]) -> Any:
        assert self._tagger is not None  # Annif initialises before it suggests
        assert self._columns is not None
        beam_size = int(params["beam_size"]) if params.get("beam_size") else None
        with self._own_errors():
            texts = [document.text for document in documents]
            predictions = self._tagger.predict(texts, int(params["limit"]), beam_size=beam_size)
        entries = predictions.matrix.tocoo()
        columns = self._columns[entries.col]
        kept = (columns >= 0) & (entries.data > 0)  # subjects may have left the vocabulary since
        scores = np.minimum(entries.data[kept], 1).astype(np.float32)
        shape = len(documents), len(self.project.subjects)
        return SuggestionBatch(
            sparse.csr_array((scores, (entries.row[kept], columns[kept])), shape=shape)
        )

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Say what went wrong in the way of Annif, in one line without a traceback."""
        try:
            yield
        except ConfigError as error:
            raise ConfigurationException(str(error), project_id=self.project.project_id) from error
        except LongtailError as error:
            raise OperationFailedException(
                str(error), project_id=self.project.project_id
            ) from error


def _config(params: Mapping[str, Any]) -> Config:
    """Return the settings: method, preset, and all parameters with a dot in their name, and the
    seed.
    """
    assignments = [
        parse_assignment(f"{name}={value}")
        for name, value in params.items()
        if "." in name or name in ("seed", "features")
    ]
    return configure(str(params["method"]), str(params["preset"]) or None, *assignments)


def register() -> None:
    """Enter the backend into Annif's table."""
    table = getattr(annif.backend, "_backend_fns", None)
    if not isinstance(table, dict):
        raise UsageError(
            "Annif: found another table of backends than that of its versions 1.x; "
            "expected one of these"
        )
    table[LongtailBackend.name] = lambda: LongtailBackend


def create_app(*args: Any, **options: Any) -> Any:
    """Return Annif's web application with this backend, for an ASGI server, or gunicorn with
    uvicorn's workers.
    """
    register()
    return annif.create_app(*args, **options)


def main() -> None:
    """Run the command ``annif`` with this backend."""
    from annif.cli import cli

    register()
    cli(prog_name="annif")


if __name__ == "__main__":
    main()
