"""``lt.sklearn.LongtailClassifier``: every method behind the contract of scikit-learn's
classifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Literal, NamedTuple
from weakref import finalize

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from longtail.config import nested
from longtail.data.csr import csr_of_nothing
from longtail.data.dataset import Dataset
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.errors import MissingExtra
from longtail.estimator import Longtail, load
from longtail.kernels import pool
from longtail.models.ranking_model import replace_beam

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.metrics import accuracy_score
    from sklearn.preprocessing import MultiLabelBinarizer
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra("the classifier for scikit-learn", "sklearn") from None

__all__ = ["LongtailClassifier"]

Kind = Literal["classes", "dense", "sparse", "lists"]  # what y was, and what predict gives

# of the raw score: a calibration is flat in places, and the best class must stay the best
_TIE = 1e-9
_SMALLEST = 1e-12  # probability that has a logarithm
_CALIBRATED = 50  # documents, at least, that the calibration should see


# scikit-learn is not typed
class LongtailClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A method of Longtail for Pipeline, GridSearchCV and all else that speaks scikit-learn.

    ``X`` is a sequence of texts, or a matrix of features, sparse or dense, in place of them. ``y``
    is one class a
    document, or several labels: a 0/1 matrix, sparse or dense, or a list of strings for each
    document; ``predict`` answers in kind. ``settings`` are those of the method,
    ``{"tree.branching": 8}`` or ``{"tree": {"branching": 8}}``.

    Of several labels, the ``k`` best of a document (None: all) have a probability, every other has
    0, and ``predict`` gives those above ``threshold``. ``threads`` 0 stands for all cores,
    ``device`` is where a network runs."""

    def __init__(
        self,
        method: str = "xr-linear",
        *,
        preset: str | None = None,
        settings: Mapping[str, Any] | None = None,
        k: int | None = 5,
        threshold: float = 0.5,
        threads: int = 0,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.preset = preset
        self.settings = settings
        self.k = k
        self.threshold = threshold
        self.threads = threads
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LongtailClassifier:
        """Train on n documents; ``y`` has n classes, n rows of 0 and 1, or n lists of strings."""
        features = self._features(X, fitting=True)
        target = _target(y)
        check_consistent_length(features, target.matrix)
        labels = Labels.of(_label_ids(target.classes))
        settings = nested(self.settings or {})
        settings["calibration"] = {"share": _held_out(_length(features))} | settings.get(
            "calibration", {}
        )
        settings.setdefault("seed", _seed(self.random_state))
        tagger = Longtail(
            self.method, preset=self.preset, threads=self.threads, device=self.device, **settings
        )
        self.model_ = tagger.fit(_dataset(features, target.matrix, labels))
        self.classes_ = target.classes
        self.kind_ = target.kind
        self.reads_text_ = isinstance(features, Strings)
        return self

    def predict(self, X: Any) -> Any:
        """Return what ``y`` was: (n,) classes, an (n, L) matrix of 0 and 1, or lists of labels, the
        best first.
        """
        ranked = self._probabilities(X)
        if self.kind_ == "classes":
            return self.classes_[self._shares(ranked).argmax(1)]
        kept = ranked.data > self.threshold
        if self.kind_ == "lists":
            rows = np.split(np.arange(ranked.nnz), ranked.indptr[1:-1])
            return [self.classes_[ranked.indices[row[kept[row]]]].tolist() for row in rows]
        ranked.data = kept.astype(np.int64)
        ranked.eliminate_zeros()
        ranked.sort_indices()
        if self.kind_ == "sparse":
            return ranked
        return ranked.toarray()

    def predict_proba(self, X: Any) -> Any:
        """Return (n, L) probabilities: dense, or sparse if ``y`` was sparse or lists. Those of
        classes sum to 1.
        """
        ranked = self._probabilities(X)
        if self.kind_ == "classes":
            return self._shares(ranked)
        ranked.sort_indices()
        if self.kind_ == "dense":
            return ranked.toarray()
        return ranked

    def decision_function(self, X: Any) -> Any:
        """Return what rises with the probability: above 0 what is predicted, (n,) for two classes,
        else (n, L).

        Where ``y`` was sparse or lists it is the probability itself, as what is not stored counts
        as 0."""
        shares = self.predict_proba(X)
        if self.kind_ == "classes":
            logs = np.log(np.maximum(shares, _SMALLEST))
            if len(self.classes_) == 2:
                return logs[:, 1] - logs[:, 0]
            return logs
        if self.kind_ != "dense":
            return shares
        return special.logit(np.maximum(shares, _SMALLEST)) - special.logit(self.threshold)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of documents with exactly the right class, or the right labels."""
        predicted = self.predict(X)
        if self.kind_ == "lists":
            binarizer = MultiLabelBinarizer(sparse_output=True).fit([*predicted, *y])
            predicted = binarizer.transform(predicted)
            y = binarizer.transform(y)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def _features(self, X: Any, fitting: bool = False) -> Strings | sparse.csr_array:
        """Return texts, or checked features (n, d) float32 in canonical order."""
        texts = _texts(X)
        if not fitting and self.reads_text_ and texts is None:
            raise ValueError("X: found features; expected texts, as in training")
        if not fitting and not self.reads_text_ and texts is not None:
            raise ValueError("X: found texts; expected features, as in training")
        if texts is not None:
            # of a matrix that this was fitted on before
            for name in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return texts
        checked = validate_data(self, X, reset=fitting, accept_sparse="csr", dtype=np.float32)
        return _canonical(checked)

    def _probabilities(self, X: Any) -> sparse.csr_array:
        """Return (n, L), the entries of each row from best to worst."""
        check_is_fitted(self)
        model = self.model_.model
        features = self._features(X)
        n_labels = len(self.classes_)
        k = n_labels
        if self.kind_ != "classes" and self.k is not None:
            k = min(self.k, n_labels)
        search = model.config.search
        if k == n_labels:
            search = replace_beam(search, n_labels)
        none = csr_of_nothing(_length(features), n_labels)
        with pool.threads(self.threads):
            ranked = model.raw_scores(_dataset(features, none, model.labels), k, search)
        raw = ranked.data.astype(np.float64)
        known = raw
        if model.calibration is not None:
            known = model.calibration(raw)
        elif model.missing_score:  # scores are margins
            known = special.expit(raw)
        if self.kind_ == "classes":
            ranked.data = known + _TIE * raw
        else:
            ranked.data = np.clip(known, _SMALLEST, 1 - _SMALLEST)
        return ranked

    def _shares(self, ranked: sparse.csr_array) -> NDArray[np.float64]:
        """Return (n, C) probabilities of classes that exclude each other."""
        dense: NDArray[np.float64] = np.maximum(ranked.toarray(), 0)
        sums = dense.sum(1, keepdims=True)
        equal = np.full_like(dense, 1 / dense.shape[1])
        shares: NDArray[np.float64] = np.divide(dense, sums, out=equal, where=sums > 0)
        return shares

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the files of the model folder as bytes: nothing in them is code."""
        state: dict[str, Any] = super().__getstate__()
        if "model_" in state:
            with TemporaryDirectory() as folder:
                state["model_"].save(Path(folder) / "model")
                state = state | {"model_": _files(Path(folder) / "model")}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the files to a temporary folder that lives as long as the model, which is verified
        and read there.
        """
        super().__setstate__(state)
        files = self.__dict__.get("model_")
        if files is not None:
            folder = Path(mkdtemp(prefix="longtail-"))
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            self.model_ = load(folder, self.threads, self.device)
            finalize(self.model_, rmtree, folder, ignore_errors=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags


class _Target(NamedTuple):
    """Labels as a matrix (n, L), what each column stands for, and the form in which they came."""

    matrix: sparse.csr_array
    classes: NDArray[Any]
    kind: Kind


def _target(y: Any) -> _Target:
    if y is None:
        raise ValueError("LongtailClassifier requires y to be passed, but the target y is None")
    if _is_lists(y):
        binarizer = MultiLabelBinarizer(sparse_output=True)
        return _Target(_ones(binarizer.fit_transform(y)), binarizer.classes_, "lists")
    y = check_array(y, accept_sparse="csr", ensure_2d=False, dtype=None, input_name="y")
    if sparse.issparse(y) or (y.ndim == 2 and type_of_target(y, "y") == "multilabel-indicator"):
        kind: Kind = "dense"
        if sparse.issparse(y):
            kind = "sparse"
        return _Target(_ones(y), np.arange(y.shape[1]), kind)
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, columns = np.unique(y, return_inverse=True)
    ends = np.arange(len(y) + 1)
    ones = np.ones(len(y), np.float32)
    return _Target(
        sparse.csr_array((ones, columns, ends), shape=(len(y), len(classes))), classes, "classes"
    )


def _is_lists(y: Any) -> bool:
    """Tell lists of strings from rows of numbers."""
    if sparse.issparse(y) or getattr(y, "ndim", 1) != 1 or not isinstance(y, Iterable):
        return False
    first = next(
        (row for row in y if not isinstance(row, list | tuple | set | frozenset) or row), None
    )
    return isinstance(first, list | tuple | set | frozenset) and isinstance(next(iter(first)), str)


def _ones(y: Any) -> sparse.csr_array:
    """Return a 0/1 matrix as a label matrix: what is stored is 1."""
    matrix = _canonical(y)
    if not np.isin(matrix.data, (0, 1)).all():
        raise ValueError("y: found a matrix of other numbers; expected 0 and 1, a column a label")
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix


def _canonical(matrix: Any) -> sparse.csr_array:
    """Return a float32 CSR with columns in order, each once; the matrix given is left as it was."""
    rows = sparse.csr_array(matrix, dtype=np.float32)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _texts(X: Any) -> Strings | None:
    """Return the texts of a sequence of strings; None where it holds something else."""
    if isinstance(X, str):
        raise ValueError("X: found one string; expected a list of texts, such as [text]")
    if sparse.issparse(X) or getattr(X, "ndim", 1) != 1 or not isinstance(X, Iterable):
        return None
    values = list(X)
    wrong = next((at for at, value in enumerate(values) if not isinstance(value, str)), None)
    if not values or wrong == 0:
        return None
    if wrong is not None:
        raise ValueError(f"X: found {values[wrong]!r} as document {wrong}; expected texts")
    return Strings.of(values)


def _dataset(
    features: Strings | sparse.csr_array, matrix: sparse.csr_array, labels: Labels
) -> Dataset:
    if isinstance(features, Strings):
        return Dataset(matrix, labels, texts=features)
    return Dataset(matrix, labels, features=features)


def _length(features: Strings | sparse.csr_array) -> int:
    if isinstance(features, Strings):
        return len(features)
    return int(features.shape[0])


def _label_ids(classes: NDArray[Any]) -> list[str]:
    """Return the classes as strings, or their numbers where 1 and "1" are two of them."""
    ids = [str(name) for name in classes.tolist()]
    if len(set(ids)) == len(ids) and all(ids):
        return ids
    return [str(number) for number in range(len(ids))]


def _held_out(n: int) -> float:
    """Return the share of n documents that is for the calibration: of few documents more, as it
    needs some itself.
    """
    return min(max(_CALIBRATED / max(n, 1), 0.02), 0.2)


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _files(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
