"""The contract of networks: the family that trains them, and the trained network that embeds
documents or ranks labels.

A family is everything about one kind of network: which settings it reads and refuses, the label
tree that it is trained on, its training in stages that can be resumed, its files in a model folder,
what a run will take, and which settings are worth tuning. The families of Longtail are the cascade
(``cascade_family.py``), one level after the other (``recursive_family.py``) and AttentionXML
(``attention_family.py``); a package of your own adds one with
:func:`longtail.methods.register_network`.

Nothing here imports torch: settings are checked, and runs forecast, where it is not installed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from msgspec.structs import replace

from longtail.config import Config, Training, Tree
from longtail.errors import UsageError
from longtail.features.encoder_folder import EncoderShape
from longtail.methods.family import Family, around
from longtail.steps.inputs import EVERYTHING, Inputs

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from longtail.data.dataset import Dataset
    from longtail.features.text_encoder import TextEncoder
    from longtail.features.tokens import Tokeniser, Tokens
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.embedder import Embedder
    from longtail.networks.losses import Loss
    from longtail.networks.training.checkpoints import Checkpoints
    from longtail.steps.work import Work
    from longtail.store import Folder, FolderWriter
    from longtail.tree.tree import LabelTree

__all__ = [
    "NetworkFamily",
    "NetworkPlan",
    "NetworkRun",
    "Ranked",
    "RankingNetwork",
    "VectorNetwork",
    "classifiers_space",
    "not_shared",
]


class VectorNetwork(Protocol):
    """An encoder, and the classifiers that read its vectors, if any."""

    family: ClassVar[str]  # name of the family that reads it from a model folder
    training: bool

    @property
    def encoder(self) -> TextEncoder:
        """The encoder; of several, the first."""

    @property
    def heads(self) -> Sequence[Any]:
        """The :class:`~longtail.networks.heads.head.Head` of each level."""

    @property
    def widths(self) -> Sequence[int]:
        """Columns of the vectors of each level."""

    def vectors(self, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the (B, d) vectors that each level reads, those of the labels last."""

    def in_half(self) -> Any:
        """Return a copy for inference in bfloat16."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that AdamW trains."""

    def train(self, mode: bool = True) -> Any:
        """Switch dropout on or off."""

    def to(self, device: torch.device) -> Any:
        """Move it to a device."""


class Ranked(NamedTuple):
    """The best labels of a batch, and the vectors that scored them."""

    scores: Tensor  # (B, k) float32, best first; 0 where there are fewer labels
    nodes: Tensor  # (B, k) int32 positions of labels in the tree's order, −1 where there are fewer
    vectors: Tensor  # (B, d) ϑ of the last level
    kept: tuple[Tensor, ...]  # S_top of each level above the labels, (B, k_t) int32


class RankingNetwork(VectorNetwork, Protocol):
    """A network that ranks labels by itself, on the way down a label tree."""

    training_settings: Training

    @property
    def slots(self) -> Sequence[int]:
        """Nodes that are scored on each level."""

    def rank(self, ids: Tensor, mask: Tensor | None, k: int) -> Ranked:
        """Return the ``k`` best labels of documents (B, T)."""

    def path_scores(self, ids: Tensor, mask: Tensor | None, path: Sequence[int]) -> Tensor:
        """Return (B,) float64 the score of the label with this path of nodes, one a level, whether
        ranked or not.
        """

    def label_vectors(self) -> VectorNetwork:
        """Return the part that makes the vectors of the last level, without any classifiers."""


@dataclass(frozen=True)
class NetworkRun:
    """The inputs of a network's training; ``tokens`` are those of ``documents``."""

    documents: Dataset
    embedder: Embedder  # tokeniser, and the encoder that training begins with and changes
    tokens: Tokens
    tree: LabelTree
    config: Config
    work: Work
    valid: Dataset | None = None  # over the labels of ``documents``; tells which epoch is the best
    loss: Loss | None = None  # given from Python, in the place of ``training.loss``
    inputs: Inputs = EVERYTHING  # of the trained network
    more_trees: Sequence[LabelTree] = ()  # beside ``tree``, for networks on several

    def checkpoints(self, number: int) -> Checkpoints:
        """Return the checkpoints of the network ``number`` of this run."""
        from longtail.networks.training.checkpoints import Checkpoints

        return Checkpoints(self.work.stages, self.work.key(self.inputs), number)


class NetworkPlan(NamedTuple):
    """What training does with an encoder and its classifiers, for a forecast of time and memory."""

    tree: tuple[int, ...]  # nodes of each level, labels last; none of an encoder as it is
    width: int  # columns of the vectors of documents
    passes: float  # forward, over all documents; a step back counts as two
    products: float = 0.0  # weights that a document is multiplied with, over all epochs
    # levels that are in memory together, one of these groups after another; a level is (nodes,
    # columns of what its classifiers read)
    level_groups: tuple[tuple[tuple[int, int], ...], ...] = ()
    keeps_classifiers: bool = False  # as part of the model
    first_vectors: float = 0.0  # numbers of all vectors before training
    kept_vectors: float = 0.0  # and while it lasts
    stages: tuple[str, ...] = ()  # of the training, as the log of a run calls them
    encoders: int = 1  # copies of the encoder in the model
    bootstraps: bool = False  # a linear solver finds the first classifiers of the first level
    averages: bool = False  # weights are averaged, also where training.average is 0


class NetworkFamily(Family):
    """One kind of network.

    ``reads`` names the groups of settings that its training and ranking read, ``custom`` among them
    if it has settings of its own there."""

    ranks: ClassVar[bool] = False  # the trained network ranks labels by itself
    # a hierarchy that is given is its label tree, and not that of the linear classifiers
    takes_hierarchy: ClassVar[bool] = False

    def check(self, config: Config) -> None:
        """Refuse settings on which training would fail, the kind of the encoder among them.

        Documents, and the files of the encoder, need not be there yet.

        Args:
            config: resolved settings.
        """

    def check_levels(self, config: Config, n_labels: int | None = None) -> None:
        """Refuse settings for another number of levels than the network's label tree will have, and
        layers that the encoder does not have; its files are there.

        Args:
            config: resolved settings.
            n_labels: number of labels; None where documents are not read yet.
        """

    def check_loss(self, config: Config, loss: Callable[..., Any]) -> None:
        """Refuse a loss from Python that the network cannot be trained by.

        Args:
            config: resolved settings.
            loss: a loss of ``longtail.networks.losses``, or a function.
        """

    def check_processes(self, config: Config) -> None:
        """Refuse to be trained by several processes (torchrun) together, as most families are not.

        Args:
            config: resolved settings.
        """
        raise not_shared(config, f"the network '{self.name}', which is trained by one process")

    def reads_label_texts(self, config: Config) -> bool:
        """Return whether names and texts of labels have a part in the training, beside the
        vocabulary of words.

        Args:
            config: resolved settings.
        """
        return False

    def upgraded(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a model folder as this version has them.

        Args:
            settings: the content of ``config.json``, as any version has written it.
        """
        return settings

    def inputs(self, config: Config) -> Inputs:
        """Return the settings that the network is trained by, beside those of the documents, the
        encoder, the label tree and ``training``; these are inputs of its stages anyway.

        A family that does not declare them is trained again after any change.

        Args:
            config: resolved settings.
        """
        return EVERYTHING

    def level_inputs(self) -> Inputs:
        """Return the settings that :meth:`tree_settings` reads beside those of ``tree``."""
        return EVERYTHING

    def n_trees(self, config: Config) -> int:
        """Return the number of label trees that the network is trained on.

        Args:
            config: resolved settings.
        """
        return 1

    def levels(self, config: Config, n_labels: int) -> tuple[int, ...]:
        """Return the nodes of each level above the labels in the network's label tree; none: labels
        alone.

        Args:
            config: resolved settings.
            n_labels: number of labels.
        """
        return config.tree.levels

    def tree_settings(self, config: Config, n_labels: int) -> Tree:
        """Return the settings of the network's label tree; where that of the linear classifiers is
        flat, it is balanced.

        Args:
            config: resolved settings.
            n_labels: number of labels.
        """
        levels = self.levels(config, n_labels)
        if not levels:
            kind = "flat"
        elif config.tree.kind == "flat":
            kind = "balanced"
        else:
            kind = config.tree.kind
        return replace(config.tree, kind=kind, levels=levels)

    def widths(self, config: Config, n_labels: int) -> tuple[int, ...]:
        """Return the nodes of each level of the network's label tree, labels last, where no
        hierarchy is given.

        Args:
            config: resolved settings.
            n_labels: number of labels.
        """
        from longtail.tree.cluster import level_widths  # loads compiled code

        tree = self.tree_settings(config, n_labels)
        if tree.kind == "flat":
            return (n_labels,)
        return (*level_widths(n_labels, tree), n_labels)

    @abstractmethod
    def fit(self, run: NetworkRun) -> Embedder:
        """Train; each part that takes long is a stage of ``run.work``, so that it can be resumed.

        Args:
            run: documents, encoder, label tree and settings.

        Returns:
            The network, ready for use: an ``Embedder``, or a ``NeuralRanker`` if it ranks labels.
        """

    def save(self, embedder: Any, folder: FolderWriter) -> None:
        """Write what the network has beside its encoder, which is written already.

        Args:
            embedder: what :meth:`fit` has returned.
            folder: the model folder.
        """

    @abstractmethod
    def load(
        self,
        folder: Folder,
        config: Config,
        tokeniser: Tokeniser,
        encoder: TextEncoder,
        device: torch.device,
    ) -> Embedder:
        """Read what :meth:`save` has written, around the encoder.

        Args:
            folder: a verified model folder.
            config: its settings.
            tokeniser: that of the encoder.
            encoder: on the CPU.
            device: where the network will be.

        Returns:
            The network, ready for use.
        """

    @abstractmethod
    def plan(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> NetworkPlan:
        """Return what training will do, from which ``forecast/networks.py`` estimates time and
        memory.

        Args:
            shape: of the encoder.
            sizes: of the documents and labels.
            config: resolved settings.
        """

    def tuning_space(self, config: Config) -> Sequence[str]:
        """Return dimensions worth searching over beside the learning rates, as ``longtail tune
        --search`` takes them.

        Args:
            config: resolved settings.
        """
        return ()


def not_shared(config: Config, cause: str) -> UsageError:
    """Return the refusal of training by several processes together."""
    way_out = "expected cascadexml, lightxml, xml-cnn or attentionxml, or one process"
    return UsageError(f"torchrun with {config.method}: found {cause}; {way_out}")


def classifiers_space(config: Config) -> Sequence[str]:
    """Return the dimensions that decide linear classifiers on Φcat, as ``longtail tune --search``
    takes them.
    """
    cost = around("ranker.cost_positive", config.ranker.cost_positive, 16)
    return ["encoder.weight=0.1..1:log", cost]
