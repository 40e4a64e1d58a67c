"""Breaks modules on purpose and counts how often their tests see it: ``make mutants``.

PYTHONPATH=scripts python -m mutants [MODULE …] [--sample N] [--seed S] [--results FILE]: a table of
modules, and the survivors with their diffs; exit code 1 where fewer than GOAL of the mutants are
seen. MODULE is one of TESTS, e.g. search/beam.

modules.py says which tests belong to a module, making.py makes mutants, running.py tests one, and
score.py counts.
"""
