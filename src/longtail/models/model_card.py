"""The model card: a summary of a model for readers of its folder."""

from __future__ import annotations

from longtail.methods import METHODS, method_toml
from longtail.models.model import Model
from longtail.models.ranking_model import RankingModel
from longtail.rankers import ranker_family
from longtail.tree.tree import LabelTree

__all__ = ["card_rows", "model_card", "scores_in_words"]


def scores_in_words(model: RankingModel) -> str:
    """Return what the scores of a model are."""
    if model.calibration is None:
        return "not calibrated"
    return "probabilities"


def _ranker_rows(model: Model) -> dict[str, str]:
    """Return rows about the label trees and the linear rankers."""
    rows = {}
    if model.neural_ranker is not None:
        rows["label tree of the network"] = _widths(model.neural_ranker.tree)
    if model.rankers:
        rows |= ranker_family(model.config).card_rows(model.rankers, model.config)
    return rows


def _widths(tree: LabelTree) -> str:
    return " → ".join(f"{width:,}" for width in tree.widths)


def _added(model: Model) -> str:
    """Return how many labels were added after training, if any."""
    if model.neural_ranker is None or not model.neural_ranker.n_added:
        return ""
    return f"; {model.neural_ranker.n_added:,} of them added after training, by their words"


def card_rows(model: Model) -> dict[str, str]:
    """Return rows about the training data and the parts of the model: name and value."""
    facts = model.facts
    labels = f"{len(model.labels):,}; {facts.pairs / facts.documents:.2f} a document"
    unit = "ready-made features" if model.vectoriser is None else "n-grams"
    features = f"{facts.n_columns:,} {unit}"
    if facts.dense_width:
        features += f" and {facts.dense_width} dense columns"
    rows = {
        "documents": f"{facts.documents:,}, and {facts.held_out:,} held out",
        "labels": labels + _added(model),
        "features": features,
        **_ranker_rows(model),
        "scores": scores_in_words(model),
    }
    if model.network is not None:
        use = "its vectors are features"
        if model.neural_ranker is not None:
            use = f"{facts.network_share:.0%} of the score"
        rows["network"] = f"{model.config.encoder.name}, {use}"
    return rows


def model_card(model: Model) -> str:
    """Return the card as Markdown: method, data, tree, metrics on held-out documents, how to use
    it, all settings that the method reads.
    """
    entry = METHODS[model.config.method]
    lines = [
        f"# {entry.name}: {len(model.labels):,} labels",
        f"{entry.what} ({entry.paper}).",
        "| | |\n|---|---|"
        + "".join(f"\n| {name} | {value} |" for name, value in card_rows(model).items()),
    ]
    if model.metrics is not None:
        which = "the documents of the calibration"
        if model.metrics.held_out:
            which = "the documents held out"
        lines.append(f"## Measured on {which}\n\n```\n{model.metrics}\n```")
    lines.append("## Use\n\n```\nlongtail predict THIS_FOLDER documents.jsonl -k 5\n```")
    lines.append(f"## Settings\n\n```toml\n{method_toml(model.config).strip()}\n```")
    return "\n\n".join(lines) + "\n"
