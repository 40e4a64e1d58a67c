"""Output for the terminal: tables and explanations on stdout, progress on stderr."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from longtail.errors import printable
from longtail.kernels.compilation import observe
from longtail.reporting import peak_memory_mb, show_on

if TYPE_CHECKING:
    from longtail.data.description import Description, Finding
    from longtail.evaluation import Measured
    from longtail.models.ensemble_model import EnsembleExplanation
    from longtail.rankers.explanation import Explanation, Step

__all__ = [
    "BarReporter",
    "CompilationBar",
    "LineReporter",
    "frequency_plot",
    "print_description",
    "print_explanation",
    "print_json",
    "print_measured",
    "print_table",
    "show_progress",
]

# a child of «longtail», so that its lines appear even if log lines of stages are suppressed
log = logging.getLogger("longtail.progress")

_LINE_SECONDS = 30
_COLUMNS = 100  # longest line of an explanation
_BAR = 24


def print_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    import msgspec

    print(msgspec.json.encode(value).decode())


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print left-aligned columns; the last one is not padded."""
    cells = [list(heads), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(map(str.ljust, row, widths)).rstrip())


def print_description(description: Description, findings: Sequence[Finding]) -> None:
    """Print counts, the frequency curve and the findings of ``longtail check``."""
    d = description
    words = ""
    if d.words_per_document is not None:
        words = f", {d.words_per_document:.1f} words each"
    print(f"documents  {d.documents:,}{words}")
    if d.feature_columns is not None:
        per_document = f"{d.features_per_document:.1f} per document"
        print(f"features   {d.feature_columns:,} columns, {per_document}")
    print(f"labels     {d.labels:,}, {d.labels_used:,} of them used")
    print(
        f"pairs      {d.pairs:,}: {d.labels_per_document:.2f} labels per document, "
        f"{d.documents_per_label:.2f} documents per label (median {d.median_documents_per_label:g})"
    )
    print(
        f"tail       {100 * d.share_of_labels_with_1:.1f} % of labels have 1 document, "
        f"{100 * d.share_of_labels_with_at_most_5:.1f} % at most 5; "
        f"the top 1 % have {100 * d.share_of_pairs_in_top_1_percent:.1f} % of pairs"
    )
    print(f"memory     {d.memory_mb:,.1f} MB\n")
    print(frequency_plot(d.frequency_curve))
    for finding in findings:
        print(f"{finding.level:8} {finding.in_words}")


def frequency_plot(curve: Sequence[tuple[int, int]], rows: int = 12, width: int = 48) -> str:
    """Return bars of documents by label rank on log scales; a power law is a straight line."""
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
    """Print the metrics, and the tables by label frequency and of reliability if there are any."""
    from longtail.metrics.layout import in_columns
    from longtail.report import reliability_in_words, reliability_rows

    print(measured.evaluation)
    if measured.by_frequency is not None:
        print(f"\n{measured.by_frequency}")
    if measured.reliability:
        heads = ["probability", "suggestions", "mean", "correct"]
        print(f"\n{in_columns([heads, *reliability_rows(measured.reliability)])}")
        print(*reliability_in_words(measured.reliability), sep="\n")


def print_explanation(explanation: Explanation | EnsembleExplanation, top: int) -> None:
    """Print an explanation with the ``top`` words of each step; of an ensemble, per member."""
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
    scores = f": {_with_probability(explanation, score)}"
    print(f"{_cut(title, _COLUMNS - len(scores))}{scores}")


def _with_probability(explanation: Explanation | EnsembleExplanation, score: str) -> str:
    if explanation.probability is None:
        return f"{score}, not calibrated"
    return f"{score}, probability {explanation.probability:.3f}"


def _print_members(explanation: EnsembleExplanation, top: int) -> None:
    """Print the sum over members, and the explanation of each."""
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
            score = f"path score {member.explanation.path_score:.3f}"
            print(f"  {_with_probability(member.explanation, score)}")
            _print_steps(member.explanation, top)


def _print_steps(explanation: Explanation, top: int) -> None:
    """Print a network's words, then the path to a label node by node, with bars on one scale."""
    sums = explanation.sums
    for step in explanation.steps:
        if step.kind == "left-out":
            _print_shares(explanation, step)
            _print_left_out(step, top)
    n_trees = len({step.tree for step in sums})
    # the last step of a tree is on its last level
    n_levels = {step.tree: step.level + 1 for step in sums}
    longest = _longest(sums)
    for step in sums:
        position = f"level {step.level + 1} of {n_levels[step.tree]}"
        if n_trees > 1:
            position = f"tree {step.tree + 1}, {position}"
        print(f"\n{_cut(f'{step.place or position}: {step.node}')}")
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
    """Print the score as the sum of the network's and the linear classifiers', if it has both."""
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
    """Print the decrease of a network's score without each word; decreases do not add up."""
    print(f"\n{_cut(step.node)}")
    meaning = "the decrease without each word (decreases do not add up)"
    print(f"  score {step.score:.3f}, logit {_signed(step.margin)}, and {meaning}")
    _print_words(step, top, _longest([step]))
    n_others = len(step.contributions) - top
    if n_others > 0:
        print(f"  {'':6}  {'':{_BAR}}  ({n_others:,} other words with smaller decreases)")
    if not step.contributions:
        print("  the network reads no word of this text")


def _print_step(step: Step, top: int, longest: float) -> None:
    """Print the parts of a margin, which add up to it, with the largest words first."""
    words = sum(part.contribution for part in step.contributions)
    parts = f"words {_signed(words)}, bias {_signed(step.bias)}"
    if step.dense:
        parts += f", dense {_signed(step.dense)}"
    print(f"  score {step.score:.3f}, margin {_signed(step.margin)} = {parts}")
    _print_words(step, top, longest)
    others = step.contributions[top:]
    if others:
        total = sum(part.contribution for part in others)
        print(f"  {_signed(total)}  {'':{_BAR}}  ({len(others):,} other words)")


def _print_words(step: Step, top: int, longest: float) -> None:
    for part in step.contributions[:top]:
        size = abs(part.contribution) / longest
        bar = ("█" if part.contribution > 0 else "░") * max(1, round(_BAR * size))
        print(_cut(f"  {_signed(part.contribution)}  {bar:{_BAR}}  {part.feature}"))


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _cut(text: str, width: int = _COLUMNS) -> str:
    """Return a single line of at most ``width`` characters without control characters."""
    line = printable(text)
    if len(line) <= width:
        return line
    return f"{line[: width - 1]}…"


# Progress on stderr


class LineReporter:
    """Progress without a terminal: a log line every 30 s."""

    def __init__(self) -> None:
        self._stages: list[tuple[str, int | None, str, float]] = []
        self._done: list[int] = []
        self._next = 0.0

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage."""
        self._stages.append((name, total, unit, time.monotonic()))
        self._done.append(0)
        self._next = time.monotonic() + _LINE_SECONDS

    def advance(self, amount: int) -> None:
        """Count, and log a line if 30 s have passed."""
        if not self._stages:
            return
        self._done[-1] += amount
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_SECONDS
            log.info("%s", self.line())

    def finish(self) -> None:
        """End the innermost stage."""
        self._stages.pop()
        self._done.pop()

    def line(self) -> str:
        """Return name, percentage, rate, remaining time and memory of the innermost stage."""
        name, total, unit, _ = self._stages[-1]
        done = self._done[-1]
        rate = self._rate()
        line = f"{name}: {_amount(done, unit)}"
        if total and rate:
            line += f", {done / total:.0%}, {(total - done) / rate:.0f} s left"
        return f"{line}, {self.speed()}"

    def speed(self) -> str:
        """Return rate and memory of the innermost stage."""
        return f"{_amount(self._rate(), self._stages[-1][2])}/s, {peak_memory_mb():,.0f} MB"

    def _rate(self) -> float:
        """Return units per second."""
        return self._done[-1] / max(time.monotonic() - self._stages[-1][3], 1e-9)


def _amount(units: float, unit: str) -> str:
    """Return an amount with its unit; bytes from a million on in MB."""
    if unit == "B" and units >= 1e6:
        return f"{units / 1e6:,.1f} MB"
    return f"{units:,.0f} {unit}"


class BarReporter(LineReporter):
    """Progress on a terminal: a bar per stage, redrawn in place."""

    def __init__(self) -> None:
        super().__init__()
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
        )
        speed = TextColumn("{task.fields[speed]}")
        self._bars = Progress(
            *columns, TimeRemainingColumn(), speed, transient=True, console=_stderr()
        )
        self._tasks: list[Any] = []

    def start(self, name: str, total: int | None, unit: str) -> None:
        """Begin a stage with a new bar."""
        super().start(name, total, unit)
        if not self._tasks:
            self._bars.start()
        self._tasks.append(self._bars.add_task(name, total=total, speed=""))

    def advance(self, amount: int) -> None:
        """Move the innermost bar."""
        if self._tasks:
            self._done[-1] += amount
            self._bars.update(self._tasks[-1], completed=self._done[-1], speed=self.speed())

    def finish(self) -> None:
        """Remove the innermost bar."""
        super().finish()
        self._bars.remove_task(self._tasks.pop())
        if not self._tasks:
            self._bars.stop()

    def compilation(self) -> CompilationBar:
        """Return an observer that shows compilations below these bars."""
        return CompilationBar(self._bars)


class CompilationBar:
    """Shows on a terminal that a kernel is being compiled."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._task: Any = None
        self._is_alone = False

    def start(self, kernel: str) -> None:
        """Show a bar without an end."""
        self._is_alone = not self._bars.live.is_started
        if self._is_alone:
            self._bars.start()
        self._task = self._bars.add_task(f"compiling {kernel}", total=None, speed="")

    def step(self) -> None:
        """Do nothing: the number of kernels is not known."""

    def finish(self) -> None:
        """Remove the bar."""
        self._bars.remove_task(self._task)
        if self._is_alone:
            self._bars.stop()


def _stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def show_progress(quiet: bool = False) -> None:
    """Send log messages to stderr; show progress as bars on a terminal, else as log lines."""
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    logger = logging.getLogger("longtail")  # matplotlib's messages stay off
    if quiet:
        logger.setLevel(logging.WARNING)
        return
    logger.setLevel(logging.INFO)
    if sys.stderr.isatty():
        _show_bars()
    else:
        show_on(LineReporter())


def _show_bars() -> None:
    reporter = BarReporter()
    show_on(reporter)
    observe(reporter.compilation())
