"""What is said to Optuna: ask for a proposal, tell an outcome."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState, create_trial

from sweeper.records import Objective, Scalar
from sweeper.search.observation import Outcome
from sweeper.search.samplers import SAMPLERS
from sweeper.search.space import quiet_optuna
from sweeper.specification.search import Sampler

Space = Callable[[optuna.Trial], Mapping[str, Scalar]]
_CONSTRAINTS = "constraints"  # how the names of attributes begin in which Optuna keeps violations
Proposal = tuple[optuna.Trial, dict[str, Scalar]]


class Study:
    """An Optuna study whose sampler is another one for each proposal."""

    def __init__(self, space: Space, objectives: Sequence[Objective]) -> None:
        self._space, self._objectives = space, tuple(objectives)
        with quiet_optuna():
            self.optuna = optuna.create_study(directions=[objective.direction.value for objective in objectives])

    def propose(self, sampler: optuna.samplers.BaseSampler, given: Mapping[str, Scalar] | None) -> Proposal:
        """Return a new trial and its configuration; parameters that are not given are sampled."""
        self.optuna.sampler = sampler
        if given is not None:
            self.optuna.enqueue_trial(dict(given))
        trial = self.optuna.ask()
        try:
            return trial, dict(self._space(trial))
        except Exception:
            self.fail(trial)
            raise

    def propose_given(self, given: Mapping[str, Scalar], seed: int = 0) -> Proposal:
        """Return a new trial with parameters that are given."""
        return self.propose(SAMPLERS[Sampler.RANDOM].quietly(seed), given)

    def fail(self, trial: optuna.Trial) -> None:
        """Tell that a trial has no outcome."""
        self.optuna.tell(trial, state=TrialState.FAIL)

    def tell(self, trial: optuna.Trial, outcomes: Sequence[Outcome]) -> None:
        """Tell the outcomes of a trial, further ones as trials of their own; none is a failure."""
        if not outcomes:
            self.fail(trial)
            return
        for name, violation in outcomes[0]["violations"].items():
            trial.set_constraint(name, violation)
        frozen = self.optuna.tell(trial, [float(value) for value in outcomes[0]["values"]])
        for outcome in outcomes[1:]:
            self._add(frozen, outcome["values"], outcome["violations"])

    def judged_again(
        self, judge: Callable[[Mapping[str, float], Sequence[float]], Mapping[str, float]]
    ) -> tuple["Study", dict[int, optuna.Trial]]:
        """Return a study that was told the same outcomes with other violations.

        Args:
            judge: returns the violations of an outcome, given those it has and its values.

        Returns:
            The study, and its own trial for each open one, by number.
        """
        study, open_ = Study(self._space, self._objectives), {}
        for trial in self.optuna.get_trials(deepcopy=False):
            if trial.state is TrialState.RUNNING:
                open_[trial.number] = study.propose_given(trial.params)[0]
                continue
            kept = {key: value for key, value in trial.system_attrs.items() if not key.startswith(_CONSTRAINTS)}
            told: dict[str, Any] = {"params": trial.params, "distributions": trial.distributions, "system_attrs": kept}
            if trial.state is TrialState.COMPLETE:
                violations = dict(judge(trial.constraints, trial.values))
                told |= {"values": trial.values, "constraints": violations or None}
            study.add(state=trial.state, **told)
        return study, open_

    def add(self, **told: Any) -> None:
        """Tell a trial that has ended; the arguments are those of ``optuna.trial.create_trial``."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.optuna.add_trial(create_trial(**told))

    def _add(self, like: optuna.trial.FrozenTrial, values: Sequence[float], violations: Mapping[str, float]) -> None:
        self.add(
            params=like.params,
            distributions=like.distributions,
            values=[float(value) for value in values],
            constraints=dict(violations) if violations else None,
        )
