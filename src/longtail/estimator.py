"""``lt.Longtail``: the one object that most people need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.checks import (
    check_settings,
    check_threads,
    check_trainable,
    warn_of_documents,
    warn_of_few_words,
)
from longtail.config import Config
from longtail.data.dataset import Dataset
from longtail.errors import UsageError
from longtail.evaluation import evaluate_model
from longtail.features.encoder_search import search_encoders_in
from longtail.kernels import pool
from longtail.methods import configure
from longtail.metrics import Evaluation
from longtail.models.ensemble_model import Ensemble, EnsembleExplanation
from longtail.models.model import Model
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import predict, train
from longtail.rankers.explanation import Explanation
from longtail.search.partial_predictions import PartialPredictions
from longtail.search.predictions import Predictions
from longtail.store import check_replaceable
from longtail.tree.given import Parents

__all__ = ["Longtail", "load"]


class Longtail:
    """A method with its settings and, once fitted or loaded, its model.

        model = lt.Longtail("xr-linear", tree={"branching": 32}, seed=1).fit(train)
        print(model.evaluate(test))

    ``settings`` are groups of settings or single ones, as above; ``encoder`` may be a name or a
    folder alone. ``threads`` 0 stands for all cores; results of linear methods do not depend on it.
    ``device`` is where a network
    runs: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``. ``encoder_folder`` holds pretrained encoders by
    name, such as ``bert-base-uncased``, which the presets of the papers ask for. ``loss`` is a
    network's loss in the place of ``training.loss``: its name, a function of scores, targets and
    counted slots, or one of ``longtail.networks.losses``."""

    def __init__(
        self,
        method: str = "xr-linear",
        *,
        preset: str | None = None,
        threads: int = 0,
        device: str = "auto",
        encoder_folder: Path | str | None = None,
        loss: Callable[..., Any] | str | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(settings.get("encoder"), str):
            settings["encoder"] = {"name": settings["encoder"]}
        if loss is not None:
            settings["training"] = _with_loss(loss, settings.get("training", {}))
        self.loss: Callable[..., Any] | None = None
        if not isinstance(loss, str):
            self.loss = loss
        self.config: Config = configure(method, preset, settings)
        self.threads = threads
        self.device = device
        self.encoder_folder = encoder_folder
        self._model: Model | Ensemble | None = None

    @classmethod
    def of(cls, model: Model | Ensemble, threads: int = 0, device: str = "auto") -> Longtail:
        """Return a trained model, or an ensemble, as a `Longtail`."""
        tagger = cls(threads=threads, device=device)
        tagger.config = model.config
        tagger._model = model
        return tagger

    @property
    def model(self) -> Model | Ensemble:
        """The fitted model."""
        if self._model is None:
            raise UsageError("this Longtail has no model yet; fit it, or use longtail.load")
        return self._model

    def fit(
        self, documents: Dataset, valid: Dataset | None = None, parents: Parents | None = None
    ) -> Longtail:
        """Train on the documents, and return this object.

        Scores become probabilities by ``valid``, which also chooses the best epoch of a network;
        without it, by some documents that are held out. ``parents`` maps each label, by its id, to
        those above it: a hierarchy in place of a tree that is made by clustering."""
        if self._model is not None and self._model.single is None:
            raise UsageError(
                "an ensemble is made of trained models; train each of them, then longtail.ensemble"
            )
        check_threads(self.threads)
        if isinstance(documents, Dataset):
            warn_of_documents(documents)
        warn_of_few_words(documents, self.config)
        with pool.threads(self.threads), search_encoders_in(self.encoder_folder):
            check_settings(self.config, self.device)
            check_trainable(documents, self.config, parents, self.loss)
            self._model = train(
                documents,
                self.config,
                valid=valid,
                parents=parents,
                device=self.device,
                loss=self.loss,
            )
        return self

    def predict(
        self,
        documents: Dataset | Iterable[str],
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
        exclude: Sequence[Iterable[str]] | None = None,
    ) -> Predictions:
        """Return the ``k`` best labels of each document with a score of at least ``threshold``,
        best first.

        ``exclude`` names labels, for each document, that may not come out. A larger ``beam_size``
        than that of the settings is a little more accurate and takes longer. Scores are
        probabilities where the model is calibrated, else those of the ranker: products along the
        path, shares of votes."""
        with pool.threads(self.threads):
            return predict(
                self.model,
                documents,
                k,
                threshold=threshold,
                beam_size=beam_size,
                exclude=exclude,
            )

    def predict_part(self, documents: Dataset, k: int = 5, **options: Any) -> PartialPredictions:
        """Return the ``k`` best labels per document that the loaded shards hold, for
        ``longtail merge``; ``options``: ``threshold`` and ``beam_size``.
        """
        with pool.threads(self.threads):
            return self.model.predict_part(documents, k, **options)

    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return the network's vectors of n documents, (n, d)."""
        return self.model.embed(documents)

    def evaluate(self, test: Dataset, k: Iterable[int] = (1, 3, 5), **options: Any) -> Evaluation:
        """Return the metrics on ``test`` at every ``k``.

        ``options``: ``bootstrap`` resamples, by ``seed``, for intervals; ``propensity``, (A, B) of
        the propensity-scored metrics or their family, else told by the name of the data; ``mask``,
        a filter file of (document, label) pairs that may not score, "auto" for the one beside the
        data, None for none; ``beam_size``."""
        with pool.threads(self.threads):
            return evaluate_model(self.model, test, ks=k, **options).evaluation

    def explain(self, text: str, label: str) -> Explanation | EnsembleExplanation:
        """Return what each word of ``text`` adds on the way to a label, by its id.

        Of a network that ranks, it is how far the label's score falls without the word.
        """
        return self.model.explain(text, label)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model folder; another model that is there is replaced with ``force`` alone."""
        check_replaceable(path, force)
        save_model(self.model, path)


def _with_loss(loss: object, training: Any) -> Any:
    """Return the settings of training with the name of the loss; UsageError where they name another
    one.
    """
    if not callable(loss) and not isinstance(loss, str):
        expected = "the name of a loss, a function of scores, targets and counted slots"
        raise UsageError(
            f"loss: found {loss!r}; expected {expected}, or one of longtail.networks.losses"
        )
    if not isinstance(training, Mapping):
        return training  # which is refused as no table of settings
    name = "custom"
    if isinstance(loss, str):
        name = loss
    named = training.get("loss", name)
    if named != name:
        raise UsageError(
            f"loss: found a loss beside training.loss={named}; expected one of the two"
        )
    return {**training, "loss": name}


def load(
    path: str | Path, threads: int = 0, device: str = "auto", shards: Collection[int] | None = None
) -> Longtail:
    """Return the model of a folder, whose every file is verified first.

    ``shards`` are those of its labels to load, where it has them (None: all); ``threads`` and
    ``device`` as in ``Longtail``."""
    return Longtail.of(load_model(path, device, shards), threads, device)
