"""The kernels that a method calls, in groups that are compiled together, and how long that takes.

A group depends on one setting: the text features, the label tree, each solver. Seconds were
measured on one core of a server with nothing compiled before; the numbers of kernels are for a
progress bar and need not be exact."""

from __future__ import annotations

from typing import NamedTuple

from longtail.config import Config
from longtail.kernels.jit import compilation_record, compiles
from longtail.methods import ranks_alone, uses_encoder
from longtail.rankers import ranker_family

__all__ = ["compilation_kernels", "compilation_seconds", "kernel_groups", "note_compiled"]


class CompilationCost(NamedTuple):
    """What a group of kernels costs on its first call."""

    seconds: float
    kernels: int


_COSTS = {
    "text": CompilationCost(8, 65),
    "tree": CompilationCost(4, 35),
    "free tree": CompilationCost(1.5, 7),  # where clusters are not balanced
    "label graph": CompilationCost(4, 20),
    "search": CompilationCost(15, 90),  # with the metrics by which scores become probabilities
    "several trees": CompilationCost(2, 12),
    "squared-hinge": CompilationCost(20, 111),
    "logistic": CompilationCost(9, 13),
    "newton": CompilationCost(24, 59),
    "proximal": CompilationCost(15, 27),
    "forest": CompilationCost(13, 46),
    "neighbours": CompilationCost(5, 20),
    "extremetext": CompilationCost(6, 12),
}
_TREES = {"balanced": ("tree",), "unbalanced": ("tree", "free tree")}
_DENSE = " with dense features"  # a type, and compiled, of its own


def kernel_groups(config: Config) -> tuple[str, ...]:
    """Return the groups of kernels that training by these settings calls, in the order of the
    stages.
    """
    if ranks_alone(config):
        return "text", "tree"
    family = ranker_family(config)
    if not family.has_label_tree:
        return "text", family.name
    groups = ["text"]
    if config.gandalf.use:
        groups.append("label graph")
    groups += _TREES.get(config.tree.kind, ())
    dense = ""
    if uses_encoder(config):
        dense = _DENSE
    if "ranker" not in family.reads:  # no solver, and nodes that read vectors of documents
        return *groups, f"{family.name}{dense}", f"search{_DENSE}"
    solver: str = config.ranker.solver
    if solver == "dual":
        solver = config.ranker.loss
    groups += [f"{solver}{dense}", f"search{dense}"]
    if config.ranker.trees > 1:
        groups.append("several trees")
    return tuple(groups)


def compilation_seconds(config: Config) -> float:
    """Return the seconds that training still has to compile on this machine, on one core."""
    return sum(cost.seconds for cost in _missing(config))


def compilation_kernels(*configs: Config) -> int:
    """Return about how many kernels trainings still have to compile on this machine."""
    return sum(cost.kernels for cost in _missing(*configs))


def note_compiled(config: Config) -> None:
    """Note that a training by these settings has compiled its kernels."""
    compilation_record().add(*kernel_groups(config))


def _missing(*configs: Config) -> list[CompilationCost]:
    """Return the costs of the groups that no training on this machine has compiled."""
    if not compiles():
        return []
    wanted = dict.fromkeys(group for config in configs for group in kernel_groups(config))
    known = compilation_record().groups()
    missing = [group.removesuffix(_DENSE) for group in wanted if group not in known]
    return [_COSTS[group] for group in missing if group in _COSTS]  # others are of packages
