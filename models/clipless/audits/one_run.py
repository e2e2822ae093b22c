r"""The audit of one whole training, with ideal canaries in its batches.

A copy of the model is trained as planned: same rate, steps, sensitivities, noise, optimiser. Its population holds
canaries beside the rows, each a privacy unit of one row or several; a fair coin for each says whether it contributes
(under replace-one: its gradient or the opposite one). The auditor is given what the claim gives an adversary: the
released sums of every step, and what the rows beside the canaries contributed. Its score of a canary is the logarithm
of the likelihood ratio

    sum_t log((1 - q) + q exp((v_t - 1/2) / sigma^2)),                                            (1)

v_t what was released at step t in the canary's direction over its sensitivity. Three games are played with them:

* **the run**: ranking canaries by (1); coins say who took part (`ranks`), of all canaries and of the surest alone,
  which tell where batches are not drawn anew; and `guesses` for any mechanism.
* **the steps**: of canaries that take part, ranking (canary, step) by v_t; the secret is which steps drew the canary.
  A step is a Gaussian mechanism; so many more draws tell its noise multiplier much better, and the accountant composes
  it. It takes for granted that batches are drawn as claimed, which the run and `noise` do not.
* **the final model**: ranking by how far the final weights lie from the first in the canary's direction.

The noise of a step is independent over entries and the canaries' directions are orthogonal, so what is seen of one
canary tells nothing of another's coin, and `ranks` applies.

Shape letters: M canaries, D all trainable entries, T steps, K pairs of a canary and a step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2

import numpy as np
import torch
from torch import Tensor

from clipless.audits.attained import epsilon_at_least
from clipless.audits.audited_training import AuditedTraining
from clipless.audits.canaries import Entries, lay_canaries, operands_of, reached_multiplier
from clipless.audits.finding import ACCUSATION, AuditKind, Finding
from clipless.audits.guesses import guessed_epsilon
from clipless.audits.planted import plant_operands
from clipless.audits.ranks import BoolArray, FloatArray, Game, RankBound, lower_bound, surest_p_value
from clipless.datasets import Split
from clipless.errors import AuditError
from clipless.network import Network
from clipless.plans.placement import Placement
from clipless.plans.plan import Plan
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.training.batch_sums import sum_gradients
from clipless.training.trainer import PrivateTrainer, check_micro_batch

CONFIDENCE = 1.0 - ACCUSATION
_MOST_CANARIES = 4000  # half of which take part
_MOST_PAIRS = 2**15
_MOST_STEPS_KEPT = 256
_MEASURED_AT_ONCE = 512
_COINS = 0x636F696E
_LEAST_AMPLITUDE = 1e-3
_SHARE_OF_RUN = 0.2  # of the level; the rest is for the steps, which tell more
_ANY_DELTA = 1e-5  # of a single step, whose epsilon is not looked at


def audit_one_run(
    training: AuditedTraining, *, canaries: int = _MOST_CANARIES, seed: int | None = None
) -> tuple[Finding, Finding]:
    """Train once with canaries; return the findings of the released sums, and of the final model alone.

    Args:
        training: whose claim is attacked; it is trained anew, from the weights that its model has.
        canaries: how many candidates there are, at most; half of them take part.
        seed: of the coins; by default from the operating system. Independent of the noise.

    Raises:
        AuditError: no weight that canaries can enter and that is trained.

    Guarantees:
        Where the claim is true, each p-value is below any level with at most that chance, and each attained bound
        exceeds the truth with a chance of at most 5 %, as `ranks` has it.
    """
    # a stream of its own: a test's noise may have the same seed
    generator = np.random.default_rng(None if seed is None else [_COINS, seed])
    run = _train(training, canaries, generator)
    return _finding(training, run, generator), _final(training, run)


@dataclass(slots=True, eq=False)
class _TrainedRun:
    """The record of a training with canaries.

    Attributes:
        coins: (M,) who takes part.
        scores: (M,) (1).
        ratios: (K,) logarithms of likelihood ratios of being drawn, for pairs of a canary that takes part and a step.
        drawn: (K,) whether it was drawn then.
        moved: (M,) how far the final weights have gone in each canary's direction.
        noise_multiplier: claimed of what is released of the attacked weights; the least of all steps.
    """

    coins: BoolArray
    scores: FloatArray
    ratios: FloatArray
    drawn: BoolArray
    moved: FloatArray
    noise_multiplier: float


class _CanaryTrainer(PrivateTrainer):
    """A training that gives drawn canaries their operands, and keeps their released sums."""

    def watch(self, entries: tuple[Entries, ...], signs_M: Tensor, first: int, rows: int) -> None:
        """Say which rows are canaries: those from ``first`` on, so many for each."""
        self._entries, self._signs_M, self._first, self._rows = entries, signs_M, first, rows
        self._places = Placement(self._places.size, None)  # operands are planted row by row
        self._others_D = torch.zeros_like(self._gradient_D)
        self._others = dict(zip(self.parameters, self._others_D.split(self.sizes), strict=True))
        self._begun = {one.parameter: self.parameters[one.parameter].detach().clone() for one in entries}
        self.scores = torch.zeros(len(signs_M), dtype=torch.float64, device=signs_M.device)
        self.ratios: list[Tensor] = []
        self.drawn: list[Tensor] = []
        self.noise_multipliers: list[float] = []

    def step(self, rows_B: Tensor) -> None:
        """Take one step; the rows of its passes are then known."""
        self._drawn_M = torch.zeros(len(self._signs_M), dtype=torch.bool, device=rows_B.device)
        self._drawn_M[self._canaries(rows_B[rows_B >= self._first])] = True
        super().step(rows_B)

    def _accumulate(self, chosen: Tensor, plan: Plan) -> None:
        canary_B = chosen >= self._first
        if not bool(canary_B.all()):
            before_D = self._gradient_D.clone()
            super()._accumulate(chosen[~canary_B], plan)
            self._others_D += self._gradient_D - before_D  # exact: sums of multiples of one grid
        if bool(canary_B.any()):
            chosen_R = self._canaries(chosen[canary_B])
            operands = operands_of(self._entries, chosen_R, self._signs_M[chosen_R])
            with plant_operands(self.model, len(chosen_R), operands):
                super()._accumulate(chosen[canary_B], plan)

    def _canaries(self, rows_R: Tensor) -> Tensor:
        return (rows_R - self._first) // self._rows

    def _add_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        super()._add_noise(plan, resting)
        carriers = [one for one in self._entries if one.parameter not in resting]
        if carriers:
            self._score(plan, carriers)
        self._others_D.zero_()

    def _score(self, plan: Plan, carriers: Sequence[Entries]) -> None:
        stds = plan.noise_stds
        weight_M, seen_M = torch.zeros_like(self.scores), torch.zeros_like(self.scores)
        for one in carriers:
            std, delta = float(stds[one.parameter]), float(plan.sensitivities[one.parameter])
            released = self._totals[one.parameter].flatten() - self._others[one.parameter]
            gain_M = one.amplitude * (delta / std) ** 2
            seen_M += gain_M * one.components(released) / delta
            weight_M += one.amplitude * gain_M
        value_M, variance_M = seen_M / weight_M, 1.0 / weight_M
        self.scores += _log_ratio(value_M, variance_M, plan.sampling_rate, plan.relation)
        self.noise_multipliers.append(reached_multiplier(plan, [one.parameter for one in carriers]))
        if len(self.ratios) < _MOST_STEPS_KEPT:
            takes_part_M = self._signs_M != 0.0
            self.ratios.append(((value_M * self._signs_M - 0.5) / variance_M)[takes_part_M])
            self.drawn.append(self._drawn_M[takes_part_M])

    def weight_scores(self) -> Tensor:
        """Return how far the weights have gone in each canary's direction, in deviations of all canaries'. (M,)."""
        moved_M = torch.zeros_like(self.scores)
        stds = self.plan.noise_stds
        for one in self._entries:
            gone = self._begun[one.parameter] - self.parameters[one.parameter].detach()
            gone_M = one.components(gone)
            gain_M = one.amplitude * float(self.plan.sensitivities[one.parameter] / stds[one.parameter])
            moved_M += gain_M * gone_M / gone_M.std().clamp(min=1e-300)
        return moved_M.nan_to_num(0.0)


def _log_ratio(value_M: Tensor, variance_M: Tensor, rate: float, relation: Relation) -> Tensor:
    """Return (1) of one step; under replace-one the canary's opposite is the alternative."""
    absent = torch.log(torch.tensor(1.0 - rate, dtype=torch.float64, device=value_M.device))
    drawn = torch.log(torch.tensor(rate, dtype=torch.float64, device=value_M.device))
    present_M = torch.logaddexp(absent, drawn + (value_M - 0.5) / variance_M)
    if relation is Relation.ADD_OR_REMOVE_ONE:
        return present_M
    return present_M - torch.logaddexp(absent, drawn + (-value_M - 0.5) / variance_M)


def _train(training: AuditedTraining, most: int, generator: np.random.Generator) -> _TrainedRun:
    model, rows = training.copy_model(), training.rows
    entries = _measure(training, model, lay_canaries(model, training.plan, most))
    canaries = len(entries[0].entry)
    coins_M = generator.random(canaries) < 0.5
    trainer = _trainer(training, model, canaries)
    absent = 0.0 if training.plan.relation is Relation.ADD_OR_REMOVE_ONE else -1.0
    signs_M = torch.where(torch.from_numpy(coins_M), 1.0, absent).to(rows.x.device)
    trainer.watch(entries, signs_M, len(rows), training.unit_rows)
    for _ in trainer.epochs():
        pass
    if not trainer.ratios:
        raise AuditError("Expected weights with canaries that are trained, all of them rest from the first step on")
    return _TrainedRun(
        coins_M,
        trainer.scores.cpu().numpy(),
        torch.cat(trainer.ratios).cpu().numpy(),
        torch.cat(trainer.drawn).cpu().numpy(),
        trainer.weight_scores().cpu().numpy(),
        max(training.plan.event().noise_multiplier, min(trainer.noise_multipliers)),
    )


def _measure(training: AuditedTraining, model: Network, entries: tuple[Entries, ...]) -> tuple[Entries, ...]:
    """Return entries with the amplitudes that canaries attain, at most 1: guards may bound a norm loosely."""
    plan = training.plan.at(model, training.loss)
    totals = {name: torch.zeros_like(model.get_parameter(name), dtype=torch.float64) for name in plan.sensitivities}
    for chosen_R in torch.arange(len(entries[0].entry), device=entries[0].entry.device).split(_MEASURED_AT_ONCE):
        x = training.rows.x.new_zeros(len(chosen_R), *model.input_shape)
        y = training.rows.y[:1].expand(len(chosen_R), *training.rows.y.shape[1:])
        with plant_operands(model, len(chosen_R), operands_of(entries, chosen_R, torch.ones_like(chosen_R))):
            exact, ghost = training.exact_norms, training.ghost_clipping
            sum_gradients(model, training.loss, x, y, plan, totals, exact=exact, ghost=ghost)
    return tuple(replace(one, amplitude=_amplitude(one, totals[one.parameter], plan)) for one in entries)


def _amplitude(one: Entries, total: Tensor, plan: Plan) -> Tensor:
    return (one.components(total) / float(plan.sensitivities[one.parameter])).clamp(_LEAST_AMPLITUDE, 1.0)


def _trainer(training: AuditedTraining, model: Network, canaries: int) -> _CanaryTrainer:
    rows, each = training.rows, training.unit_rows
    x = torch.cat([rows.x, rows.x.new_zeros(canaries * each, *rows.x.shape[1:])])
    y = torch.cat([rows.y, rows.y[:1].expand(canaries * each, *rows.y.shape[1:])])
    ones, units = torch.arange(len(rows), device=x.device), torch.arange(canaries + 1, device=x.device)
    data = Split(x, y, None if each == 1 else torch.cat([ones, len(rows) + each * units]))
    return _CanaryTrainer(
        model,
        training.loss,
        data,
        adapt_plan(training.plan, len(data)),
        training.optimizer,
        check_micro_batch(training.micro_batch_size, data),
        training.source(),
        ghost_clipping=training.ghost_clipping,
        exact_norms=training.exact_norms,
    )


def adapt_plan(plan: Plan, population: int) -> Plan:
    """Return the plan for another number of rows at the same rate, steps, sensitivities and noise."""
    batch_size = plan.sampling_rate * population
    while ceil(population / batch_size) > plan.steps_per_epoch:  # one step more by rounding alone
        batch_size *= 1.0 + 2.0**-50
    return replace(plan, population=population, batch_size=batch_size)


def _finding(training: AuditedTraining, run: _TrainedRun, generator: np.random.Generator) -> Finding:
    """Play the run and the steps, at shares of the level; the larger bound is attained."""
    delta = training.plan.delta
    event = replace(training.plan.event(), noise_multiplier=run.noise_multiplier)
    game = Game(event=event, canaries=len(run.coins))
    whole = lower_bound(run.scores, run.coins, game, delta, 1.0 - _SHARE_OF_RUN / 2 * ACCUSATION)
    alone = lower_bound(run.scores, run.coins, game, delta, CONFIDENCE)
    steps = _steps_bound(run, event.sampling_rate, 1.0 - (1.0 - _SHARE_OF_RUN) * ACCUSATION, generator)
    composed = (
        0.0 if steps is None else epsilon_at_least(replace(event, noise_multiplier=steps.noise_multiplier), delta)
    )
    p_steps = 1.0 if steps is None else steps.p_value
    p_surest = surest_p_value(run.scores, run.coins, game)
    return Finding(
        kind=AuditKind.ONE_RUN,
        subject=training.subject,
        epsilon=training.epsilon,
        delta=delta,
        attained=max(whole.epsilon, composed),
        confidence=CONFIDENCE,
        p_value=min(1.0, min(whole.p_value, p_surest) / (_SHARE_OF_RUN / 2), p_steps / (1.0 - _SHARE_OF_RUN)),
        contradicted=False,
        evidence={
            "canaries": len(run.coins),
            "taking part": int(run.coins.sum()),
            "steps": event.steps,
            "noise multiplier of the attacked weights": run.noise_multiplier,
            "attained by the run": alone.epsilon,
            "attained by the steps": composed,
            "p-value of the run": whole.p_value,
            "p-value of the surest": p_surest,
            "p-value of the steps": p_steps,
            "attained of any mechanism": guessed_epsilon(run.scores, run.coins, delta, CONFIDENCE),
        },
    )


def _steps_bound(run: _TrainedRun, rate: float, confidence: float, generator: np.random.Generator) -> RankBound | None:
    """Play the game of the steps; None where every step draws every canary, or too few pairs were seen.

    The more frequent kind of pairs, drawn or not, is thinned until each that is kept has a fair coin.
    """
    if not 0.0 < rate < 1.0:
        return None
    thinned_K, odds = (~run.drawn, rate / (1.0 - rate)) if rate < 0.5 else (run.drawn, (1.0 - rate) / rate)
    kept = np.flatnonzero(~thinned_K | (generator.random(len(thinned_K)) < odds))
    if len(kept) < 2:
        return None
    count = min(_MOST_PAIRS, _round_down(len(kept)))
    chosen = generator.permutation(kept)[:count]
    step = PoissonGaussian(
        noise_multiplier=run.noise_multiplier, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE
    )
    game = Game(event=step, canaries=count)
    return lower_bound(run.ratios[chosen], run.drawn[chosen], game, _ANY_DELTA, confidence)


def _round_down(count: int) -> int:
    """Return at most as many, one of few sizes: nulls of one size are drawn once for all trainings."""
    return int(2.0 ** (floor(8.0 * log2(count)) / 8.0))


def _final(training: AuditedTraining, run: _TrainedRun) -> Finding:
    delta = training.plan.delta
    event = replace(training.plan.event(), noise_multiplier=run.noise_multiplier)
    bound = lower_bound(run.moved, run.coins, Game(event=event, canaries=len(run.coins)), delta, CONFIDENCE)
    return Finding(
        kind=AuditKind.FINAL_MODEL,
        subject=training.subject,
        epsilon=training.epsilon,
        delta=delta,
        attained=bound.epsilon,
        confidence=CONFIDENCE,
        p_value=bound.p_value,
        contradicted=False,
        evidence={"canaries": len(run.coins), "taking part": int(run.coins.sum())},
    )
