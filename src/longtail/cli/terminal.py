"""What a person sees on stdout: tables, pictures of letters, and why a label came out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from longtail.errors import printable

if TYPE_CHECKING:
    from longtail.data.description import Description, Finding
    from longtail.evaluation import Measured
    from longtail.models.ensemble_model import EnsembleExplanation
    from longtail.rankers.explanation import Explanation, Step

__all__ = [
    "frequency_plot",
    "print_description",
    "print_explanation",
    "print_json",
    "print_measured",
    "print_table",
]

_COLUMNS = 100  # that a line of an explanation has at most
_BAR = 24


def print_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    import msgspec

    print(msgspec.json.encode(value).decode())


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print left-aligned columns, as wide as they need to be; the last one is not padded."""
    cells = [list(heads), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def print_description(description: Description, findings: Sequence[Finding]) -> None:
    """Print counts, the frequency curve and the findings of ``longtail check``."""
    d = description
    words = "" if d.words_per_document is None else f", {d.words_per_document:.1f} words each"
    print(f"documents  {d.documents:,}{words}")
    if d.feature_columns is not None:
        print(f"features   {d.feature_columns:,} columns, {d.features_per_document:.1f} a document")
    print(f"labels     {d.labels:,}, {d.labels_used:,} of them used")
    print(
        f"pairs      {d.pairs:,}: {d.labels_per_document:.2f} labels a document, "
        f"{d.documents_per_label:.2f} documents a label (median {d.median_documents_per_label:g})"
    )
    print(
        f"tail       {100 * d.share_of_labels_with_1:.1f} % of labels have 1 document, "
        f"{100 * d.share_of_labels_with_at_most_5:.1f} % at most 5; "
        f"the top 1 % hold {100 * d.share_of_pairs_in_top_1_percent:.1f} % of pairs"
    )
    print(f"memory     {d.memory_mb:,.1f} MB\n")
    print(frequency_plot(d.frequency_curve))
    for finding in findings:
        print(f"{finding.level:8} {finding.in_words}")


def frequency_plot(curve: Sequence[tuple[int, int]], rows: int = 12, width: int = 48) -> str:
    """Return documents by label rank as bars, both on a log scale: a straight edge is a power law."""
    if not curve:
        return ""
    step = max(1, math.ceil((len(curve) - 1) / (rows - 1)))
    most = math.log1p(curve[0][1])
    picked = [*curve[:-1:step], curve[-1]]
    bars = [
        f"{rank:>10,}  {'█' * max(1, round(width * math.log1p(n) / most))} {n:,}"
        for rank, n in picked
    ]
    return "\n".join([f"{'label rank':>10}  documents (log scale)", *bars, ""])


def print_measured(measured: Measured) -> None:
    """Print the metrics, where the hits come from, and how far probabilities can be trusted, as far
    as known.
    """
    from longtail.metrics.layout import in_columns
    from longtail.report import reliability_in_words, reliability_rows

    print(measured.evaluation)
    if measured.by_frequency is not None:
        print(f"\n{measured.by_frequency}")
    if measured.reliability:
        heads = ["probability", "suggestions", "mean", "right"]
        print(f"\n{in_columns([heads, *reliability_rows(measured.reliability)])}")
        print(*reliability_in_words(measured.reliability), sep="\n")


def print_explanation(explanation: Explanation | EnsembleExplanation, top: int) -> None:
    """Print why a label came out, with the ``top`` words of each step; of an ensemble, one member
    after another.
    """
    from longtail.models.ensemble_model import EnsembleExplanation

    if isinstance(explanation, EnsembleExplanation):
        _print_members(explanation, top)
    else:
        _print_title(explanation, f"path score {explanation.path_score:.3f}")
        _print_steps(explanation, top)


def _print_title(explanation: Explanation | EnsembleExplanation, score: str) -> None:
    if explanation.name == explanation.label:
        title = explanation.name
    else:
        title = f"{explanation.name} ({explanation.label})"
    found = f": {_found(explanation, score)}"
    print(f"{_cut(title, _COLUMNS - len(found))}{found}")


def _found(explanation: Explanation | EnsembleExplanation, score: str) -> str:
    if explanation.probability is None:
        sure = "not calibrated"
    else:
        sure = f"probability {explanation.probability:.3f}"
    return f"{score}, {sure}"


def _print_members(explanation: EnsembleExplanation, top: int) -> None:
    """Print the sum over members, and under each what its score is made of."""
    parts = " + ".join(
        f"{member.weight:.2f} × {member.score:.3f}" for member in explanation.members
    )
    _print_title(explanation, f"score {explanation.score:.3f}")
    print(_cut(f"= {parts}"))
    for number, member in enumerate(explanation.members):
        added = f"{member.weight:.2f} × {member.score:.3f} = {member.weight * member.score:.3f}"
        print(f"\n{_cut(f'member {number}, {member.method}: {added}')}")
        if member.explanation is None:
            print(_cut(f"  {member.note}"))
        else:
            print(
                f"  {_found(member.explanation, f'path score {member.explanation.path_score:.3f}')}"
            )
            _print_steps(member.explanation, top)


def _print_steps(explanation: Explanation, top: int) -> None:
    """Print a network's words, then the way to a label node by node; bars of one kind are on one
    scale.
    """
    sums = explanation.sums
    for step in explanation.steps:
        if step.kind == "left-out":
            _print_shares(explanation, step)
            _print_left_out(step, top)
    n_trees = len({step.tree for step in sums})
    # the last step of a tree is its last level
    n_levels = {step.tree: step.level + 1 for step in sums}
    longest = _longest(sums)
    for step in sums:
        place = f"level {step.level + 1} of {n_levels[step.tree]}"
        place = step.place or (f"tree {step.tree + 1}, {place}" if n_trees > 1 else place)
        print(f"\n{_cut(f'{place}: {step.node}')}")
        _print_step(step, top, longest)
    if sums:
        summed = "  ".join(f"{word} {_signed(total)}" for word, total in explanation.summed()[:top])
        summed = summed or "no word of the text has a weight"
        if len(sums) == len(explanation.steps):
            which = "all steps"
        else:
            which = "all steps but the network's"
        print(f"\n{_cut(f'over {which}: {summed}')}")


def _print_shares(explanation: Explanation, network: Step) -> None:
    """Print the score as the sum of the network's and the linear classifiers', where there are
    both.
    """
    share = explanation.network_share
    if share < 1:
        linear = (explanation.path_score - share * network.score) / (1 - share)
        of_network = f"{share:.2f} × {network.score:.3f} of the network"
        print(f"= {of_network} + {1 - share:.2f} × {linear:.3f} of the linear classifiers")


def _longest(steps: Sequence[Step]) -> float:
    return (
        max((abs(part.contribution) for step in steps for part in step.contributions), default=0.0)
        or 1.0
    )


def _print_left_out(step: Step, top: int) -> None:
    """Print how much the score of a network falls without each word: no sum, so what is not shown
    has no total.
    """
    print(f"\n{_cut(step.node)}")
    falls = "how far it falls without each word, which is no sum"
    print(f"  score {step.score:.3f}, logit {_signed(step.margin)}, and {falls}")
    _print_words(step, top, _longest([step]))
    rest = len(step.contributions) - top
    if rest > 0:
        print(f"  {'':6}  {'':{_BAR}}  ({rest:,} other words, each of no more than the last)")
    if not step.contributions:
        print("  the network reads no word of this text")


def _print_step(step: Step, top: int, longest: float) -> None:
    """Print the parts of a margin, largest words first, such that what is shown adds up."""
    words = sum(part.contribution for part in step.contributions)
    parts = f"words {_signed(words)}, bias {_signed(step.bias)}"
    parts += f", dense {_signed(step.dense)}" if step.dense else ""
    print(f"  score {step.score:.3f}, margin {_signed(step.margin)} = {parts}")
    _print_words(step, top, longest)
    rest = step.contributions[top:]
    if rest:
        total = sum(part.contribution for part in rest)
        print(f"  {_signed(total)}  {'':{_BAR}}  ({len(rest):,} other words)")


def _print_words(step: Step, top: int, longest: float) -> None:
    for part in step.contributions[:top]:
        size = abs(part.contribution) / longest
        bar = ("█" if part.contribution > 0 else "░") * max(1, round(_BAR * size))
        print(_cut(f"  {_signed(part.contribution)}  {bar:{_BAR}}  {part.feature}"))


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _cut(text: str, width: int = _COLUMNS) -> str:
    """Return one line, cut where it would be too wide; nothing in it acts on a terminal."""
    line = printable(text)
    if len(line) <= width:
        return line
    return f"{line[: width - 1]}…"
