"""Several trained models, also of different methods, as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from longtail.config import Search
from longtail.data.csr import csr_of
from longtail.data.dataset import Dataset
from longtail.data.fingerprints import Fingerprints
from longtail.data.labels import Label, Labels
from longtail.data.strings import Strings
from longtail.errors import UsageError
from longtail.models.model import Model
from longtail.models.ranking_model import RankingModel, members_k, replace_beam
from longtail.rankers.explanation import Explanation
from longtail.search.ensemble import in_order, mean_scores, reciprocal_ranks
from longtail.search.partial_predictions import PartialPredictions
from longtail.store import Folder

__all__ = [
    "METHOD",
    "Ensemble",
    "EnsembleExplanation",
    "Fusion",
    "MemberExplanation",
    "united_labels",
]

METHOD = "ensemble"  # what stands in config.method of an ensemble
Fusion = Literal["mean", "rank", "weights"]

_EXPLAINED = 5  # labels asked for, as in a prediction


class MemberExplanation(msgspec.Struct, frozen=True):
    """What one member adds to a label's score, ``weight`` times ``score``: why, or why that has no
    words.
    """

    method: str
    weight: float
    score: float  # 0: not among the best labels of this member
    explanation: Explanation | None
    note: str = ""


class EnsembleExplanation(msgspec.Struct, frozen=True):
    """A label's score as the sum of what the members add."""

    label: str
    name: str
    score: float
    probability: float | None  # None: the ensemble is not calibrated
    members: tuple[MemberExplanation, ...]

    def weighted(self) -> list[tuple[float, Explanation | None]]:
        """Return the explanation of each member, if it has one, and its weight."""
        return [(member.weight, member.explanation) for member in self.members]


@dataclass(frozen=True)
class Ensemble(RankingModel):
    """Trained models whose scores are averaged; ``labels`` are those of all members.

    What is averaged are the members' probabilities where all of them are calibrated, else their raw
    scores; with the fusion by rank, 61 / (60 + rank). ``config`` is a name and the settings of the
    calibration: those of the members are in the members."""

    members: tuple[Model, ...]
    weights: tuple[float, ...]  # not negative, of sum 1
    fusion: Fusion
    # the members' files, where they have any
    folders: tuple[Folder | None, ...] = field(compare=False)

    @property
    def single(self) -> None:
        """None: this is no model of one method."""
        return None

    def weighted_members(self) -> tuple[tuple[Model, float], ...]:
        """Return each member with its weight."""
        return tuple(zip(self.members, self.weights, strict=True))

    @property
    def methods(self) -> tuple[str, ...]:
        """The method of each member."""
        return tuple(member.config.method for member in self.members)

    @property
    def preset(self) -> str:
        """The preset that all members have in common; empty for none."""
        first, *others = (member.preset for member in self.members)
        if any(preset != first for preset in others):
            return ""
        return first

    @property
    def all_fingerprints(self) -> tuple[Fingerprints, ...]:
        """Fingerprints of the training documents of each member."""
        return tuple(
            fingerprints for member in self.members for fingerprints in member.all_fingerprints
        )

    @property
    def calibrated_members(self) -> bool:
        """Whether what is averaged are the members' probabilities."""
        return self.fusion != "rank" and all(
            member.calibration is not None for member in self.members
        )

    @property
    def missing_score(self) -> float:
        """What a label counts for at a member that does not find it."""
        if self.fusion == "rank" or self.calibrated_members:
            return 0.0
        return self.members[0].missing_score  # the same for all members

    @property
    def reads_text(self) -> bool:
        """Whether texts are all that is needed, no ready-made features."""
        return self.members[0].reads_text  # the same for all members

    @cached_property
    def _columns(self) -> tuple[NDArray[np.int32], ...]:
        """The column of each label of each member among those of the ensemble."""
        column_of = self.labels.columns
        return tuple(
            np.fromiter((column_of[label] for label in member.labels.ids), np.int32)
            for member in self.members
        )

    def raw_scores(
        self,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None = None,
    ) -> sparse.csr_array:
        """Return (n, L) scores before calibration, best first: the weighted mean over members.

        If ``search`` is not that of ``config``, each member searches with its beam size."""
        used = [number for number, weight in enumerate(self.weights) if weight]
        scores = self.member_scores(documents, k, search, exclude, used)
        return mean_scores(scores, k, [self.weights[number] for number in used], self.missing_score)

    def member_scores(
        self,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None = None,
        members: Iterable[int] | None = None,
    ) -> list[sparse.csr_array]:
        """Return the (n, L) scores that are averaged, each member's best first: of more than ``k``
        labels.
        """
        if members is None:
            members = range(len(self.members))
        return [self._scores_of(number, documents, k, search, exclude) for number in members]

    def _scores_of(
        self,
        number: int,
        documents: Dataset | Strings,
        k: int,
        search: Search,
        exclude: sparse.csr_array | None,
    ) -> sparse.csr_array:
        member = self.members[number]
        columns = self._columns[number]
        member_search = member.config.search
        if search is not self.config.search:
            member_search = replace_beam(member_search, search.beam_size)
        if exclude is not None:
            exclude = sparse.csr_array(exclude[:, columns])
        each = members_k(k, len(columns))
        ranked = member.raw_scores(documents, each, member_search, exclude)
        ranked = csr_of(ranked.data, columns[ranked.indices], ranked.indptr, len(self.labels))
        if self.fusion == "rank":
            return reciprocal_ranks(ranked)
        if self.calibrated_members and member.calibration is not None:
            # which a mean in float32 makes equal
            return in_order(ranked, member.calibration(ranked.data))
        return ranked

    def embed(self, documents: Dataset | Iterable[str]) -> NDArray[np.float32]:
        """Return the (n, d) vectors of the one member with a network."""
        with_network = [member for member in self.members if member.network is not None]
        if len(with_network) != 1:
            count = len(with_network) or "no"
            members = "members" if with_network else "member"
            raise UsageError(
                f"this ensemble has {count} {members} with a network; expected exactly one; "
                "embed with the folder of one member, such as ENSEMBLE/member-0"
            )
        return with_network[0].embed(documents)

    def explain(self, text: str, label: str) -> EnsembleExplanation:
        """Return what each member adds to the score of ``label``, an id or a name, and what each
        word does there.
        """
        column = self.labels.find(label)
        label = self.labels.ids[column]
        every = self.member_scores(self.readable([text]), _EXPLAINED, self.config.search)
        members = tuple(
            _explained(member, weight, _score(scores, column, self.missing_score), text, label)
            for member, weight, scores in zip(self.members, self.weights, every, strict=True)
        )
        score = sum(member.weight * member.score for member in members)
        probability = None
        if self.calibration is not None:
            probability = float(self.calibration(np.array([score]))[0])
        return EnsembleExplanation(label, self.labels.name(column), score, probability, members)

    def predict_part(
        self,
        documents: Dataset,
        k: int = 5,
        *,
        threshold: float = 0.0,
        beam_size: int | None = None,
    ) -> PartialPredictions:
        """Refuse: an ensemble has no shards."""
        raise UsageError(
            "an ensemble has no shards; load a model of one label tree in shards, or use predict"
        )


def _score(ranked: sparse.csr_array, column: int, missing: float) -> float:
    """Return the score of a label of the only document, ``missing`` where it is not among those
    ranked.
    """
    scores = ranked.data[ranked.indices == column]
    if not len(scores):
        return missing
    return float(scores[0])


def _explained(
    member: Model, weight: float, score: float, text: str, label: str
) -> MemberExplanation:
    method = member.config.method
    if label not in member.labels:
        return MemberExplanation(method, weight, score, None, "does not know this label")
    try:
        return MemberExplanation(method, weight, score, member.explain(text, label))
    except UsageError as error:  # vectors or ready-made features, which have no words
        return MemberExplanation(method, weight, score, None, str(error))


def united_labels(members: Sequence[Labels]) -> Labels:
    """Return the labels that any member has, in the order of their first appearance, described as
    there.
    """
    first, *others = members
    if all(labels.ids == first.ids for labels in others):
        return first
    by_id: dict[str, Label] = {}
    for labels in members:
        for label in labels:
            by_id.setdefault(label.id, label)
    return Labels.of(by_id.values())
