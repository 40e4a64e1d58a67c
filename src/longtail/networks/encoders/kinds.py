"""The contract of encoders: what settings, checks and forecasts know of each kind without torch.

A kind is known by its name, the setting ``encoder.kind``. All but the transformer read vectors of
words; a package of your own adds one of those with :func:`longtail.methods.register_encoder`, a
:class:`WordEncoderKind` beside its
:class:`~longtail.networks.encoders.word_encoder.WordEncoder`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from longtail.config import Config
from longtail.features.encoder_folder import EncoderShape
from longtail.methods import registry

if TYPE_CHECKING:
    from longtail.forecast.sizes import DataSizes
    from longtail.networks.encoders.word_encoder import WordEncoder

__all__ = [
    "CNN_BOTTLENECK",
    "CNN_CHUNKS",
    "CNN_FILTERS",
    "CNN_WORDS",
    "Bag",
    "Convolution",
    "EncoderKind",
    "Inception",
    "Lstm",
    "RoutedInception",
    "Transformer",
    "WordEncoderKind",
]

# words that a filter of XML-CNN reads, and filters of each
CNN_WORDS = (2, 4, 8)
CNN_FILTERS = 128
# p, and numbers between its chunks and the labels
CNN_CHUNKS = 8
CNN_BOTTLENECK = 512
_PADDING = 4.0  # tokens per document, as lengths are rounded up to a multiple of 8


class EncoderKind:
    """One kind of encoder."""

    name: ClassVar[str]  # the setting encoder.kind
    # vectors of words, of a tokeniser made from the documents or of a pretrained encoder
    reads_words: ClassVar[bool] = False
    # classifiers of labels can be made of the labels' words (``label_text``): the encoder has two
    # layers, which are as wide as the vectors of words
    reads_label_words: ClassVar[bool] = False
    # a batch has documents of similar length; not where all texts are padded alike, or normalised
    # over a batch
    batches_by_length: ClassVar[bool] = False
    normalises_over_batch: ClassVar[bool] = False
    trains_in_processes: ClassVar[bool] = False  # by torchrun
    exports_to_onnx: ClassVar[bool] = True

    def vector_width(self, shape: EncoderShape) -> int:
        """Return the columns of a layer's vector of a document.

        Args:
            shape: of the encoder.
        """
        return shape.width

    def operations(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> float:
        """Return the floating-point operations of a forward pass over all documents: those of a
        transformer's layers, 2 per weight and token.

        Args:
            shape: of the encoder.
            sizes: of the documents.
            config: resolved settings.
        """
        tokens = sizes.tokens(config.encoder.max_tokens)
        padded = np.minimum(tokens.values + _PADDING, config.encoder.max_tokens)
        layer = 4 * shape.width**2 + 2 * shape.width * shape.inner
        return (
            2 * shape.depth * float((padded * (layer + 2 * padded * shape.width)) @ tokens.counts)
        )


class WordEncoderKind(EncoderKind):
    """A kind of encoder on vectors of words."""

    reads_words: ClassVar[bool] = True
    # ``module:class`` of the encoder, which is made from ``(vectors, idf, pad, max_tokens)``
    encoder: ClassVar[str]
    depth: ClassVar[int] = 1  # layers

    def options(self, config: Config) -> Mapping[str, Any]:
        """Return keyword arguments of the encoder's class beside ``(vectors, idf, pad,
        max_tokens)``.

        Args:
            config: resolved settings.
        """
        return {}

    def encoder_class(self) -> type[WordEncoder]:
        """Return the class of the encoder; torch is imported here, not before."""
        kind: type[WordEncoder] = registry.imported(self.encoder)
        return kind

    def shape(self, vocabulary: int, dimensions: int) -> EncoderShape:
        """Return the shape of an encoder, for forecasts; most parameters are vectors of words.

        Args:
            vocabulary: number of words.
            dimensions: numbers of a word's vector.
        """
        parameters = vocabulary * dimensions + 8 * dimensions * dimensions
        return EncoderShape(dimensions, self.depth, 1, 2 * dimensions, vocabulary, parameters)

    def configured_shape(self, vocabulary: int, dimensions: int, config: Config) -> EncoderShape:
        """Return :meth:`shape`, for kinds whose shape depends on further settings by these.

        Args:
            vocabulary: number of words.
            dimensions: numbers of a word's vector.
            config: resolved settings.
        """
        return self.shape(vocabulary, dimensions)


class Transformer(EncoderKind):
    """A pretrained transformer, in the layout of Hugging Face."""

    name = "transformer"
    batches_by_length = True
    trains_in_processes = True


class Bag(WordEncoderKind):
    """Astec: the sum of word vectors."""

    name = "bag"
    encoder = "longtail.networks.encoders.bag:BagEncoder"
    reads_label_words = True
    depth = 2


class Inception(WordEncoderKind):
    """InceptionXML: convolutions along the numbers of word vectors."""

    name = "inception"
    encoder = "longtail.networks.encoders.inception:InceptionEncoder"
    normalises_over_batch = True
    depth = 2


class RoutedInception(WordEncoderKind):
    """InceptionXML-LF: the convolutions as a mixture of experts."""

    name = "routed-inception"
    encoder = "longtail.networks.encoders.inception:RoutedInceptionEncoder"
    reads_label_words = True
    normalises_over_batch = True
    depth = 2


class Convolution(WordEncoderKind):
    """XML-CNN: convolutions over words."""

    name = "cnn"
    encoder = "longtail.networks.encoders.cnn:ConvolutionEncoder"
    trains_in_processes = True
    exports_to_onnx = False  # ONNX does not have its pooling

    def vector_width(self, shape: EncoderShape) -> int:
        """Return the columns of the bottleneck."""
        return CNN_BOTTLENECK

    def operations(self, shape: EncoderShape, sizes: DataSizes, config: Config) -> float:
        """Return the operations of the filters and the bottleneck.

        Batches are not of similar length, so that each text is padded to the longest of a batch."""
        most = config.encoder.max_tokens
        words = sizes.words(most)
        longest = words.expected_largest(config.training.batch_size)
        padded = min(longest + _PADDING, most)
        filters = shape.width * CNN_FILTERS * sum(CNN_WORDS)
        bottleneck = len(CNN_WORDS) * CNN_FILTERS * min(CNN_CHUNKS, most) * CNN_BOTTLENECK
        return 2.0 * words.size * (padded * filters + bottleneck)


class Lstm(WordEncoderKind):
    """AttentionXML: a bidirectional LSTM, one state per token."""

    name = "lstm"
    encoder = "longtail.networks.encoders.lstm:LstmEncoder"
    trains_in_processes = True

    def options(self, config: Config) -> Mapping[str, Any]:
        """Return the width of a state, and the dropout of word vectors."""
        return {"hidden": config.attention.hidden, "word_dropout": config.attention.word_dropout}

    def configured_shape(self, vocabulary: int, dimensions: int, config: Config) -> EncoderShape:
        """Return the shape with the four gates of a state, in both directions."""
        hidden = config.attention.hidden
        state = 2 * hidden
        gates = 4 * state * (dimensions + hidden)
        return EncoderShape(state, 1, 1, state, vocabulary, vocabulary * dimensions + gates)
