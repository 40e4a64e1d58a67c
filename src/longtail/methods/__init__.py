"""The methods by name, and the settings of each: the catalogue, and how what was asked for is laid
over it.
"""

from __future__ import annotations

from longtail.methods.catalogue import Method
from longtail.methods.reads import is_read, method_toml, settings_read, unread_message
from longtail.methods.registry import (
    METHODS,
    load_plugins,
    register_encoder,
    register_method,
    register_network,
    register_ranker,
)
from longtail.methods.resolving import (
    classifiers_alone,
    configure,
    encoder_of,
    method,
    network_of,
    network_ranks,
    ranks_alone,
    reads_label_texts,
    uses_encoder,
)

__all__ = [
    "METHODS",
    "Method",
    "classifiers_alone",
    "configure",
    "encoder_of",
    "is_read",
    "load_plugins",
    "method",
    "method_toml",
    "network_of",
    "network_ranks",
    "ranks_alone",
    "reads_label_texts",
    "register_encoder",
    "register_method",
    "register_network",
    "register_ranker",
    "settings_read",
    "unread_message",
    "uses_encoder",
]
