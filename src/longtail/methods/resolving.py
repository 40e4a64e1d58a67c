"""Methods by their names, and the settings of one: its own, a preset's, and those that were asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from longtail.config import Config, Training, file_of, resolve
from longtail.errors import ConfigError, unknown_name
from longtail.methods.catalogue import Method, Settings
from longtail.methods.reads import check_settings_are_read
from longtail.methods.registry import METHODS, encoder_kind, load_plugins, network_family

if TYPE_CHECKING:
    from longtail.networks.base import NetworkFamily
    from longtail.networks.encoders.kinds import EncoderKind

__all__ = [
    "classifiers_alone",
    "configure",
    "encoder_of",
    "method",
    "network_of",
    "network_ranks",
    "ranks_alone",
    "reads_label_texts",
    "uses_encoder",
]


def method(name: str, source: str = "") -> Method:
    """Return the catalogue's entry, or name the nearest one; ``source`` is what the error begins
    with.
    """
    load_plugins()
    if name not in METHODS:
        raise ConfigError(f"{source}{unknown_name('method', name, METHODS)}")
    return METHODS[name]


def network_of(config: Config) -> NetworkFamily | None:
    """Return the family of the network that the method trains; None where it trains none."""
    name = METHODS[config.method].network
    if not name:
        return None
    return network_family(name)


def encoder_of(config: Config) -> EncoderKind:
    """Return the kind of the encoder, whether it is used or not."""
    return encoder_kind(config.encoder.kind)


def network_ranks(config: Config) -> bool:
    """Return whether the method has a network that ranks labels by itself."""
    network = network_of(config)
    return network is not None and network.ranks


def uses_encoder(config: Config) -> bool:
    """Return whether an encoder reads the documents: that of a network, or a pretrained one as it
    is.
    """
    return bool(METHODS[config.method].network) or config.features != "tfidf"


def ranks_alone(config: Config) -> bool:
    """Return whether the network ranks by itself, without linear classifiers beside it."""
    return network_ranks(config) and config.cascade.combine == "never"


def classifiers_alone(config: Config) -> bool:
    """Return whether linear classifiers on a network's vectors rank in its place."""
    return network_ranks(config) and config.cascade.combine == "only"


def reads_label_texts(config: Config) -> bool:
    """Return whether names and texts of labels have a part in the training, beside the vocabulary
    of words.
    """
    if config.gandalf.use:
        return True
    has_tree = METHODS[config.method].ranker == "tree"
    if has_tree and any(kind.endswith("text") for kind in config.label_features.kinds):
        return True
    network = network_of(config)
    return network is not None and network.reads_label_texts(config)


def _beside_a_network(classifier: str) -> Settings:
    """Return what makes the linear classifiers on Φcat this method's; text features stay, and one
    is enough.
    """
    recipe = METHODS[classifier].settings
    ranker = {**recipe["ranker"], "trees": 1}
    return {"tree": recipe["tree"], "search": recipe["search"], "ranker": ranker}


def configure(name: str, preset: str | None = None, *overrides: Settings) -> Config:
    """Return the resolved settings of a method: its own, then the preset's, then each of
    ``overrides``.

    Settings that the method does not read are refused. A preset that is named among ``overrides``,
    as in a file that ``longtail methods`` printed, counts like ``preset``."""
    of_method = [settings for settings in overrides if settings.get("method") == name]
    entry = method(name, file_of(of_method, "method"))
    presets = [settings.get("preset") for settings in overrides]
    named = [other for other in presets if isinstance(other, str) and other]
    if preset is None and named:
        preset = named[-1]
    if preset is not None and (not isinstance(preset, str) or preset not in entry.presets):
        if not entry.presets:
            raise ConfigError(f"unknown preset '{preset}'; {name} has none")
        raise ConfigError(unknown_name("preset", preset, entry.presets))
    recipe = {}
    if preset is not None:
        recipe = {**entry.presets[preset].settings, "preset": preset}
    sources = recipe, *overrides
    config = resolve({"method": name}, entry.settings, *sources)
    classifier = config.cascade.classifier
    # its settings, below those that were asked for
    if entry.network == "cascade" and classifier != "xr-linear":
        config = resolve({"method": name}, entry.settings, _beside_a_network(classifier), *sources)
    if config.method != name:
        problem = f"method: found '{config.method}' among the settings for '{name}'"
        raise ConfigError(f"{file_of(overrides, 'method')}{problem}; expected '{name}' or nothing")
    if config.training.loss != Training().loss and not entry.network:
        source = file_of(overrides, "training.loss")
        problem = f"training.loss: found {config.training.loss} with {name}"
        raise ConfigError(
            f"{source}{problem}, which trains no network; leave it out, or choose a neural method"
        )
    if config.preset != (preset or ""):
        problem = f"preset: found {config.preset!r} among the settings for '{preset}'"
        raise ConfigError(f"{file_of(overrides, 'preset')}{problem}; expected one of them")
    check_settings_are_read(config, sources)
    return config
