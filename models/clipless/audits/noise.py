"""The audit of the noise and of the batches: do they follow the plan, independently of each other?

A training on a copy of the model takes steps on empty batches, whose released sums are nothing but noise, before and
after it was restored from its state. Each test below has a p-value; the finding's is the smallest times their number.

* deviation: the noise of a parameter has the planned one, or more (chi-square);
* shape: it is normal (Kolmogorov-Smirnov);
* steps: no two steps correlate, of one training or of its restored one, whose source is another (largest correlation);
* entries: neighbouring entries of a parameter do not correlate;
* parameters: entries of two parameters at the same place do not correlate;
* rate: rows join batches at the planned rate, or more rarely (binomial);
* batches: a row that joined a batch is no more likely to join the next one (binomial);
* workers: a forked process draws other bytes than its parent, from the source that they share.

Shape letters: S steps, N entries that are looked at.
"""

import os
import select
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, sqrt

import numpy as np
import torch
from scipy import stats

from clipless.audits.attained import attained_epsilon
from clipless.audits.audited_training import AuditedTraining, Effort
from clipless.audits.finding import ACCUSATION, AuditKind, Finding
from clipless.audits.one_run import adapt_plan
from clipless.audits.ranks import FloatArray
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.privacy.randomness import RandomSource
from clipless.training.checkpoint import TrainingState
from clipless.training.trainer import PrivateTrainer, check_micro_batch

_STEPS = {Effort.BRIEF: (2, 8), Effort.CHEAP: (4, 8), Effort.THOROUGH: (64, 64)}
_NUMBERS = 128  # of each parameter: half the noise has then a p-value above 1e-8 once in ten million times
_FLIPS = {Effort.BRIEF: 2**10, Effort.CHEAP: 2**14, Effort.THOROUGH: 2**18}
_MOST_ENTRIES = 4096  # of a parameter
_MOST_SHAPED = 10_000  # numbers whose shape is tested
_WORDS = 256  # that a forked process draws
_PATIENCE = 10.0  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class RecordedNoise:
    """Recorded noise and drawn batches.

    Attributes:
        noise: by parameter (S, N), over the planned deviations.
        members: (batches, rows) who joined.
        rate: planned.
        repeated: whether a forked process drew its parent's bytes; None where that was not tried.
    """

    noise: Mapping[str, FloatArray]
    members: np.ndarray
    rate: float
    repeated: bool | None


class _RecordingTrainer(PrivateTrainer):
    """A training that keeps its noise, over the planned deviations."""

    def begin_recording(self) -> None:
        """Begin to keep it."""
        self.recorded: dict[str, list[FloatArray]] = {name: [] for name in self.parameters}

    def _add_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        before = {name: total.clone() for name, total in self._totals.items()}
        super()._add_noise(plan, resting)
        for name, std in plan.noise_stds.items():
            noise = (self._totals[name] - before[name]).flatten()[:_MOST_ENTRIES] / float(std)
            self.recorded[name].append(noise.cpu().numpy())

    def draw(self, batches: int) -> np.ndarray:
        """Return the members of batches, drawn as a training on this device draws them."""
        drawn = self.sampler.batches(batches, self._data.x.device)
        return np.stack([np.isin(np.arange(len(self._data)), rows_B.cpu().numpy()) for rows_B in drawn])


def audit_noise(training: AuditedTraining, effort: Effort = Effort.CHEAP) -> Finding:
    """Listen to the noise and the batches of a training.

    Guarantees:
        Where both are as planned, the p-value is below any level with at most that chance, and the attained bound, from
        the deviations alone, exceeds the truth with a chance of at most 5 %.
    """
    recorded = record_noise(training, effort)
    p_values, multiplier = p_values_of(recorded, effort), least_multiplier(recorded.noise, training.plan)
    return Finding(
        kind=AuditKind.NOISE,
        subject=training.subject,
        epsilon=training.epsilon,
        delta=training.plan.delta,
        attained=attained_epsilon(training.plan.event(), multiplier, training.plan.delta, effort),
        confidence=1.0 - ACCUSATION,
        p_value=min(1.0, len(p_values) * min(p_values.values())),
        contradicted=False,
        evidence={
            "steps": len(next(iter(recorded.noise.values()))),
            "noise multiplier, at most": multiplier,
            **{f"p-value of {name}": value for name, value in p_values.items()},
        },
    )


def record_noise(training: AuditedTraining, effort: Effort) -> RecordedNoise:
    """Take steps on empty batches, restore the training and take more; draw batches.

    With `Effort.BRIEF` nothing is restored or forked: that is the same for all trainings of one form.
    """
    steps, batches = steps_to_record(training.plan, effort), 2 * max(1, _FLIPS[effort] // (2 * len(training.rows)))
    first = _trainer(training, None)
    _rest(first, steps)
    noise, rate = {name: kept for name, kept in first.recorded.items() if kept}, training.plan.sampling_rate
    if effort is Effort.BRIEF:
        return RecordedNoise({name: np.stack(kept) for name, kept in noise.items()}, first.draw(batches), rate, None)
    second = _trainer(training, first.state())
    _rest(second, max(1, steps // 2))
    members = np.concatenate([first.draw(batches // 2), second.draw(batches - batches // 2)])
    both = {name: np.stack(kept + second.recorded[name]) for name, kept in noise.items()}
    return RecordedNoise(both, members, rate, repeats_when_forked(training.source()))


def steps_to_record(plan: Plan, effort: Effort) -> int:
    """Return how many steps are listened to: as many as tell half the noise of the smallest parameter from all of it.

    Within limits: parameters of a few entries are heard less surely, together with the others.
    """
    least, most = _STEPS[effort]
    return min(most, max(least, ceil(_NUMBERS / min(plan.sizes.values()))))


def _trainer(training: AuditedTraining, state: TrainingState | None) -> _RecordingTrainer:
    trainer = _RecordingTrainer(
        training.copy_model(),
        training.loss,
        training.rows,
        adapt_plan(training.plan, len(training.rows)),
        training.optimizer,
        check_micro_batch(training.micro_batch_size, training.rows),
        training.source(),
        state=state,
    )
    trainer.begin_recording()
    return trainer


def _rest(trainer: _RecordingTrainer, steps: int) -> None:
    for _ in range(steps):
        trainer.step(torch.empty(0, dtype=torch.int64))


def p_values_of(recorded: RecordedNoise, effort: Effort = Effort.CHEAP) -> dict[str, float]:
    """Return the p-value of each test; with `Effort.BRIEF` of those that plans may fail one by one."""
    noise = list(recorded.noise.values())
    steps = np.concatenate(noise, axis=1)
    found = {
        "deviation": _smallest([float(stats.chi2.cdf((z**2).sum(), z.size)) for z in noise]),
        "steps": _smallest([_correlation_p_value(a, b) for a, b in combinations(steps, 2)]),
        "rate": float(stats.binom.sf(recorded.members.sum() - 1, recorded.members.size, recorded.rate)),
        "batches": _overlap_p_value(recorded.members, recorded.rate),
    }
    if effort is Effort.BRIEF:
        return found
    found |= {
        "shape": _smallest([float(stats.kstest(_some(z), "norm").pvalue) for z in noise]),
        "entries": _smallest([_correlation_p_value(z[:, :-1], z[:, 1:]) for z in noise]),
        "parameters": _smallest([_together(a, b) for a, b in combinations(noise, 2)]),
    }
    return found if recorded.repeated is None else found | {"workers": 0.0 if recorded.repeated else 1.0}


def _smallest(p_values: Sequence[float]) -> float:
    """Return the p-value of several tests; of none, as of the pairs of a single parameter, 1."""
    return min(1.0, len(p_values) * min(p_values)) if p_values else 1.0


def _some(values: FloatArray) -> FloatArray:
    flat: FloatArray = values.ravel()
    return flat[:: -(-len(flat) // _MOST_SHAPED)]


def _correlation_p_value(a: FloatArray, b: FloatArray) -> float:
    """P-value of independent normals of any deviations: given the one, the other's direction is uniform.

    The square of the cosine between them then has a beta distribution; of a single number each it is always 1. Where
    both are parts of one, as neighbouring entries are, large cosines are no more frequent than that.
    """
    size = float((a**2).sum()) * float((b**2).sum())
    if size == 0.0 or b.size == 1:
        return 1.0
    return float(stats.beta.sf(min(1.0, float((a * b).sum()) ** 2 / size), 0.5, 0.5 * (b.size - 1)))


def _together(a: FloatArray, b: FloatArray) -> float:
    count = min(a.shape[1], b.shape[1])
    return _correlation_p_value(a[:, :count], b[:, :count])


def _overlap_p_value(members: np.ndarray, rate: float) -> float:
    """P-value of rows that are in both of two batches that follow each other; each batch is looked at once."""
    both = members[0::2] & members[1::2]
    return float(stats.binom.sf(both.sum() - 1, both.size, rate**2))


def least_multiplier(noise: Mapping[str, FloatArray], plan: Plan) -> float:
    """Return an upper bound of the noise multiplier, at 95 %, from the recorded deviations."""
    level = ACCUSATION / len(noise)
    at_most = {name: sqrt(float((z**2).sum()) / stats.chi2.ppf(level, z.size)) for name, z in noise.items()}
    if plan.method is Method.DP_SGD:  # one mechanism: as private as its least noisy part
        return plan.noise_multiplier * min(at_most.values())
    stds = plan.noise_stds
    if min(at_most.values()) == 0.0:
        return 0.0
    return 1.0 / sqrt(sum((plan.sensitivities[name] / (float(stds[name]) * at_most[name])) ** 2 for name in noise))


def repeats_when_forked(source: RandomSource) -> bool | None:
    """Return whether a forked process draws its parent's bytes; None where that cannot be tried.

    The child draws and ends at once: no other code of this process runs in it.
    """
    if not (source.secure and hasattr(os, "fork")):
        return None
    source.random_bytes(8)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, whose locks the child does not need
        child = os.fork()
    if child == 0:
        try:
            os.write(writing, source.random_bytes(8 * _WORDS))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], _PATIENCE)
        drawn = os.read(reading, 8 * _WORDS) if ready else b""
    finally:
        os.close(reading)
        if not ready:
            os.kill(child, 9)
        os.waitpid(child, 0)
    own = np.frombuffer(bytes(source.random_bytes(8 * _WORDS)), dtype=np.uint64)
    return None if not drawn else bool(np.isin(np.frombuffer(drawn, dtype=np.uint64), own).any())
