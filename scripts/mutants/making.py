"""Makes mutants: those of mutmut 3, also of decorated functions, which mutmut itself leaves alone."""

from __future__ import annotations

import difflib
import random
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Mutant", "sample_of"]


class Mutant(NamedTuple):
    """A change of one place in one function."""

    source: str  # of the whole file
    lines: tuple[str, str]  # what was there and what is, without the space around them
    diff: str


def sample_of(file: Path, size: int, seed: int) -> tuple[dict[int, Mutant], int]:
    """Return a sample of a file's mutants by number, in the order of their places, and how many
    there are in all.
    """
    from libcst import MetadataWrapper, parse_module

    source = file.read_text()
    wrapper = MetadataWrapper(parse_module(source))
    visitor = _visitor()
    wrapper.visit(visitor)
    every = [
        change for change in visitor.mutations if change.contained_by_top_level_function is not None
    ]
    chosen = sorted(random.Random(seed).sample(range(len(every)), min(size, len(every))))
    mutants = {}
    for number in chosen:
        changed: Any = wrapper.module.deep_replace(
            every[number].original_node, every[number].mutated_node
        )
        mutants[number] = _mutant(source, changed.code, file.name)
    return mutants, len(every)


def _visitor() -> Any:
    from libcst import CSTNode, FunctionDef
    from mutmut.mutation.file_mutation import MutationVisitor
    from mutmut.mutation.mutators import mutation_operators
    from mutmut.mutation.pragma_handling import IgnoredCode

    class Everywhere(MutationVisitor):
        """Kernels and properties too: a file with one mutant needs none of mutmut's care for
        decorators.
        """

        def _skip_node_and_children(self, node: CSTNode) -> bool:
            if isinstance(
                node, FunctionDef
            ):  # what numba compiles in place of a function never runs here
                return any(
                    "overload" in name or "intrinsic" in name
                    for name in map(_code, node.decorators)
                )
            return super()._skip_node_and_children(node)

    return Everywhere(mutation_operators, IgnoredCode(set(), set(), set()))


def _code(node: Any) -> str:
    from libcst import Module

    return Module([]).code_for_node(node)


def _mutant(before: str, after: str, name: str) -> Mutant:
    lines = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=2, lineterm="")
    )
    removed, added = (
        " ".join(line[1:].strip() for line in lines[2:] if line.startswith(sign))
        for sign in ("-", "+")
    )
    return Mutant(after, (removed, added), "\n".join(lines[2:]))
