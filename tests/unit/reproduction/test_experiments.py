"""The experiments: every published row that can be run again has one, and each says what the paper says."""

from __future__ import annotations

import pytest

from longtail.errors import UsageError
from longtail.methods import METHODS
from longtail.reproduction.experiments import experiment, experiments, left_out, parse_experiments
from longtail.reproduction.published import published_datasets, read_tables

EXPERIMENTS = experiments()


def test_every_row_of_the_tables_of_results_has_an_experiment():
    """By system, dataset, models, setting and metric: a table may repeat the rows of another."""
    covered = set()
    for entry in EXPERIMENTS.values():
        for row in entry.published_rows():
            for metric, value in row.values.items():
                covered.add((row.system, entry.dataset, row.setting, metric, value))
    left = {
        (table, system)
        for own in left_out()
        for table in own.tables
        for system in own.systems or [None]
    }
    missing = set()
    for table in read_tables().values():
        for cell in table.cells():
            out = (table.id, None) in left or (table.id, cell.system) in left
            found = (cell.system, cell.dataset, cell.setting, cell.metric, cell.value) in covered
            if cell.value is not None and not out and not found:
                missing.add((table.id, cell.system, cell.dataset, cell.metric))
    assert missing == set()


def test_rows_that_are_left_out_exist_and_have_no_experiment():
    references = {
        (own.table, own.system) for entry in EXPERIMENTS.values() for own in entry.references
    }
    for own in left_out():
        for table in own.tables:
            systems = {cell.system for cell in read_tables()[table].cells()}
            assert systems >= set(own.systems)
            assert not {(table, system) for system in own.systems or systems} & references


@pytest.mark.parametrize("entry", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_experiments_are_sound(entry):
    assert entry.method in METHODS
    assert entry.dataset in published_datasets()
    assert entry.name == f"{entry.method}/{entry.dataset}" + (
        f"+{entry.variant}" if entry.variant else ""
    )
    names = [member.name for member in entry.members]
    assert len(set(names)) == len(names)
    assert len({(member.encoder, member.seed, member.missing) for member in entry.members}) == len(
        names
    )
    assert entry.labels >= 5
    for reference in entry.references:
        assert reference.table in read_tables()
    assert bool(entry.published_rows()) is not entry.dataset.startswith("lf-")


@pytest.mark.parametrize("entry", EXPERIMENTS.values(), ids=list(EXPERIMENTS))
def test_recipes_can_be_configured(entry):
    if entry.preset not in METHODS[entry.method].presets:
        pytest.skip(f"{entry.method} has no preset {entry.preset}")
    for member in entry.members:
        config = entry.config(member)
        assert (config.method, config.preset) == (entry.method, entry.preset)
        assert config.seed == member.seed
        assert config.encoder.name == (member.encoder or config.encoder.name)


def test_members_are_those_of_the_papers():
    encoders = ["bert-base-uncased", "roberta-base", "xlnet-base-cased"]
    for method in ("cascadexml", "xr-transformer", "lightxml"):
        assert [member.encoder for member in experiment(f"{method}/wiki10-31k").members] == encoders
        large = experiment(f"{method}/amazon-670k").members
        assert [(member.encoder, member.seed) for member in large] == [("", 0), ("", 1), ("", 2)]
    nine = experiment("x-transformer/eurlex-4k").members
    assert len(nine) == 9
    assert [member.name for member in nine if not member.missing] == [
        "bert-pifa-tfidf", "roberta-pifa-tfidf", "xlnet-pifa-tfidf",
    ]  # fmt: skip


def test_the_paper_s_row_stands_beside_its_experiment():
    rows = {
        (row.table, row.models): row.values
        for row in experiment("cascadexml/amazon-670k").published_rows()
    }
    assert rows["cascadexml-2", 3] == {"P@1": 50.22, "P@3": 45.20, "P@5": 41.45}
    assert rows["cascadexml-4", 1] == {
        "P@1": 48.5, "P@3": 43.7, "P@5": 40.0, "hours on one GPU": 7.5, "hours on several GPUs": 3.0,
    }  # fmt: skip
    with_tfidf = experiment("cascadexml/amazon-670k+tfidf").published_rows()
    assert {row.table: row.values["P@1"] for row in with_tfidf if "P@1" in row.values} == {
        "cascadexml-2": 52.15
    }
    # the two systems of one name have their own rows
    assert all(
        row.values.get("P@1") != 52.15
        for row in experiment("cascadexml/amazon-670k").published_rows()
    )


def test_repeats_have_seeds_of_their_own():
    entry = experiment("cascadexml/amazon-670k")
    seeds = [
        entry.config(member, repeat=repeat).seed for repeat in range(3) for member in entry.members
    ]
    assert seeds == list(range(9))


def test_settings_are_laid_over_each_other():
    text = """
    [members]
    two = [{ name = "a", seed = 4 }, { name = "b", settings = { "ranker.prune" = 0.5, "tree.branching" = 4 } }]
    [published]
    [[experiments]]
    method = "xr-linear"
    preset = ""
    datasets = ["eurlex-4k"]
    members = "two"
    settings = { "tree.branching" = 8, "search.beam_size" = 3 }
    """
    entry = parse_experiments(text)["xr-linear/eurlex-4k"]
    one, two = (entry.config(member, [{"search": {"beam_size": 7}}]) for member in entry.members)
    assert (one.seed, one.tree.branching, one.ranker.prune, one.search.beam_size) == (4, 8, 0.1, 7)
    assert (two.seed, two.tree.branching, two.ranker.prune, two.search.beam_size) == (0, 4, 0.5, 7)


@pytest.mark.parametrize("names", ['members = "none"', 'published = "none"'])
def test_unknown_lists_are_refused(names):
    text = f'[members]\na = []\n[published]\nb = []\n[[experiments]]\nmethod = "plt"\ndatasets = ["eurlex-4k"]\n{names}'
    with pytest.raises(ValueError, match=r"unknown list \w+.none; expected one of"):
        parse_experiments(text)


def test_an_experiment_that_stands_twice_is_refused():
    block = '[[experiments]]\nmethod = "plt"\ndatasets = ["eurlex-4k"]\n'
    with pytest.raises(ValueError, match="plt/eurlex-4k: is in two blocks"):
        parse_experiments(block + block)


def test_an_unknown_experiment_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'cascadexml/amazon-670k'"):
        experiment("cascadexml/amazon670k")
