"""A word encoder and a method with it, outside the package; torch is imported with the encoder only.

The label tree, the classifiers of each level and their training are those of CascadeXML."""

from __future__ import annotations

from longtail.methods import Method, register_encoder, register_method
from longtail.networks.encoders.kinds import WordEncoderKind


class MaxPool(WordEncoderKind):
    """The kind of the encoder: ``encoder.kind=max-pool``."""

    name = "max-pool"
    encoder = "max_pool_encoder:MaxPoolEncoder"


def register() -> None:
    """Add the encoder and its method; the entry point of the package names this function."""
    register_encoder(MaxPool())
    register_method(
        Method(
            "max-pool",
            "the largest value of each column of the word vectors, and all labels one-vs-all",
            "Shen et al. 2018, Baseline Needs More Love (SWEM-max)",
            ("words", "none", "none", "max pooling", "all labels"),
            settings={
                "encoder": {"kind": "max-pool", "name": "learned", "width": 100},
                "cascade": {"last_level": "full", "combine": "never", "label_rows": "centroid"},
                "training": {"encoder_rate": 3e-3, "head_rate": 3e-3},
            },
            network="cascade",
        )
    )
