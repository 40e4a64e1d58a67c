"""The model card: what a person who finds a model folder wants to know."""

from __future__ import annotations

from longtail.methods import METHODS, method_toml
from longtail.models.model import Model
from longtail.rankers import ranker_family
from longtail.tree.tree import LabelTree

__all__ = ["card_rows", "model_card"]


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
    """Return how many labels are known by their words alone, if any."""
    added = 0 if model.neural_ranker is None else model.neural_ranker.n_added
    if added:
        return f"; {added:,} of them added after training, by their words"
    return ""


def card_rows(model: Model) -> dict[str, str]:
    """Return what the model was trained on and what it is made of, each with its name."""
    facts = model.facts
    vocabulary = (
        f"{facts.n_columns:,} {'ready-made features' if model.vectoriser is None else 'n-grams'}"
    )
    rows = {
        "documents": f"{facts.documents:,}, and {facts.held_out:,} held out",
        "labels": f"{len(model.labels):,}; {facts.pairs / facts.documents:.2f} a document{_added(model)}",
        "features": vocabulary
        + (f" and {facts.dense_width} dense columns" if facts.dense_width else ""),
        **_ranker_rows(model),
        "scores": "probabilities" if model.calibration is not None else "not calibrated",
    }
    if model.network is not None:
        if model.neural_ranker is not None:
            ranks = f"{facts.network_share:.0%} of the score"
        else:
            ranks = "its vectors are features"
        rows["network"] = f"{model.config.encoder.name}, {ranks}"
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
        if model.metrics.held_out:
            which = "the documents held out"
        else:
            which = "the documents of the calibration"
        lines.append(f"## Measured on {which}\n\n```\n{model.metrics}\n```")
    lines.append("## Use\n\n```\nlongtail predict THIS_FOLDER documents.jsonl -k 5\n```")
    lines.append(f"## Settings\n\n```toml\n{method_toml(model.config).strip()}\n```")
    return "\n\n".join(lines) + "\n"
