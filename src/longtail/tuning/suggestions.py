"""Which settings to try next: what optuna's TPE makes of the trials before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from longtail.config import Config, settings
from longtail.tuning.journal import Journal, Trial
from longtail.tuning.space import Dimension, Range

__all__ = ["Asker"]


class Asker:
    """Suggestions of optuna's TPE; they depend on the seed and the trials before alone."""

    def __init__(self, space: Sequence[Dimension], base: Config, journal: Journal) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._space = space
        self._journal = journal
        self._seed = base.seed
        self._distributions = {
            dimension.path: _distribution(optuna, dimension) for dimension in space
        }
        values = {setting.path: setting.value for setting in settings(base)}
        self._first = {
            dimension.path: _encoded(dimension, values[dimension.path])
            for dimension in space
            if dimension.holds(values[dimension.path])
        }

    def ask(self, number: int) -> dict[str, Any]:
        """Return the settings of a trial: the method's own in the first one, as far as they are in
        the space.
        """
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=(1_000_003 * self._seed + number) % 2**32)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in self._journal.ended:
            if trial.number < number:
                study.add_trial(self._frozen(trial))
        if number == 1:
            study.enqueue_trial(self._first)
        params = study.ask(self._distributions).params
        return {
            dimension.path: _decoded(dimension, params[dimension.path]) for dimension in self._space
        }

    def _frozen(self, trial: Trial) -> Any:
        params = {d.path: _encoded(d, trial.params[d.path]) for d in self._space}
        states = self._optuna.trial.TrialState
        state = states.COMPLETE if trial.value is not None else states.FAIL
        return self._optuna.trial.create_trial(
            params=params, distributions=self._distributions, value=trial.value, state=state
        )


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    if not isinstance(dimension, Range):
        return optuna.distributions.CategoricalDistribution(
            [_encoded(dimension, v) for v in dimension.values]
        )
    if dimension.whole:
        return optuna.distributions.IntDistribution(
            int(dimension.low), int(dimension.high), log=dimension.log
        )
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _encoded(dimension: Dimension, value: Any) -> Any:
    """Return the value as optuna knows it: a choice, which may be a list, as JSON."""
    if isinstance(dimension, Range):
        return value
    return msgspec.json.encode(dimension.values[dimension.position(value)]).decode()


def _decoded(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension, Range):
        if dimension.whole:
            return int(value)
        return min(max(float(f"{value:.4g}"), dimension.low), dimension.high)
    return msgspec.json.decode(value)
