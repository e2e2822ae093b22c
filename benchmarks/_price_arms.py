"""Ways to spend a price P of everything, and what may leave a sweep then: what `price.py` compares.

| way | what is trained | what leaves |
|---|---|---|
| affordable | stages from whisper to aloud, in slots that cost P together | every point |
| each P | every configuration at P: costs several times P | every point |
| total P | every configuration at equal noise, P together | every point |
| selection | a secret random number of candidates, the best of which costs P | the points of one trial |
| random | one configuration at P | its points |
| rehearsed | one configuration at P, the best with that noise on halves of public validation rows | its points |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import sqrt

import numpy as np
from _price_training import Proposal, Scored, Task, Trainings
from scipy.stats import kendalltau

from clipless.privacy.accounting.calibration import noise_multiplier_for
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.domination import delta_of_slots, dominated_noise_multiplier
from clipless.privacy.accounting.private_selection import Distribution, Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import Composed, PoissonGaussian
from sweeper.pareto.dominance import Floats, nondominated, volume
from sweeper.search.finalists import Explored, finalists
from sweeper.search.space import sample

Stages = tuple[tuple[int, float], ...]

SPARE_EPOCHS = 1  # of each stage, as the product reserves for attempts that are killed
POOLED: Mapping[str, int] = {"each P": 10, "total P": 8, "selection": 8}  # what each of several seeds adds to a pool
DRAWN = 300  # sweeps drawn from a pool
FIGURES = ("accuracy", "certified", "hypervolume")
_REPETITIONS = Repetitions(distribution=Distribution.GEOMETRIC, mean=10.0)
_PRECISION = 1.002  # ratio of noise that is enough to noise that is not


def least_noise(enough: Callable[[float], bool], low: float) -> float:
    """The least noise multiplier that is enough, to 0.2 %."""
    high = low
    while not enough(high):
        low, high = high, 2.0 * high
    while high > _PRECISION * low:
        middle = sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@cache
def cut(slot: PoissonGaussian, stages: Stages, spare: int, price: float, delta: float) -> tuple[PoissonGaussian, ...]:
    """The slot of each stage; all of them together, ``spare`` steps of each stage among them, cost ``price``.

    Args:
        slot: rate and steps of each.
        stages: the number of trials and the share of the signal of each.
        spare: steps of each stage beside its slots.
        price: epsilon of everything.
        delta: of everything.
    """
    slots_of = delta_of_slots(delta, sum(trials for trials, _ in stages))

    def pools(noise: float) -> tuple[PoissonGaussian, ...]:
        return tuple(
            PoissonGaussian(
                noise_multiplier=noise * sqrt(trials / share),
                sampling_rate=slot.sampling_rate,
                steps=trials * slot.steps + spare,
                relation=slot.relation,
            )
            for trials, share in stages
        )

    rough = least_noise(lambda noise: rdp_epsilon(Composed(pools(noise)), slots_of) <= price, 0.1)
    noise = least_noise(lambda noise: claim(Composed(pools(noise)), slots_of).epsilon <= price, 0.8 * rough)
    return tuple(pool.with_steps(slot.steps) for pool in pools(noise))


@cache
def candidate(slot: PoissonGaussian, price: float, delta: float) -> PoissonGaussian:
    """What each candidate of a private selection may spend."""

    def at(noise: float) -> PoissonGaussian:
        return PoissonGaussian(
            noise_multiplier=noise, sampling_rate=slot.sampling_rate, steps=slot.steps, relation=slot.relation
        )

    alone = noise_multiplier_for(price, delta, slot.sampling_rate, slot.steps)
    return at(least_noise(lambda noise: selection_epsilon(at(noise), _REPETITIONS, delta) <= price, alone))


def loudness(event: PoissonGaussian) -> float:
    """Sampling rate * sqrt(steps) / noise multiplier."""
    return event.sampling_rate * sqrt(event.steps) / event.noise_multiplier


@dataclass(frozen=True)
class Found:
    """What a way came to.

    Attributes:
        validation: best accuracy, best certified accuracy and hypervolume of the points.
        test: the same of the points that are best, or on the front, on validation rows.
    """

    validation: Floats
    test: Floats

    @classmethod
    def of(cls, points: Scored) -> "Found":
        """The figures of all points that may leave."""
        shown, hidden = points.validation, points.test
        best = shown.argmax(axis=0)
        front = nondominated(-shown)
        return cls(
            np.array([*shown.max(axis=0), area(shown)]),
            np.array([hidden[best[0], 0], hidden[best[1], 1], area(hidden[front])]),
        )

    @classmethod
    def mean(cls, several: Sequence["Found"]) -> "Found":
        """The mean figures."""
        return cls(*(np.mean([getattr(one, name) for one in several], axis=0) for name in ("validation", "test")))

    @classmethod
    def error(cls, without: Sequence["Found"]) -> "Found":
        """Standard errors by the jackknife, from the figures without each seed in turn."""
        factor = (len(without) - 1) / sqrt(len(without))
        spread = [np.std([getattr(one, name) for one in without], axis=0, ddof=1) for name in ("validation", "test")]
        return cls(*(factor * one for one in spread))


def area(points: Floats) -> float:
    """The hypervolume of points in (accuracy, certified accuracy), against (0, 0)."""
    return volume(np.unique(1.0 - points, axis=0))


@dataclass
class Sweep:
    """One task, seed and price.

    The first proposal is the reference of every slot, and so is its event in the product.

    Attributes:
        pooled: how many configurations the seed adds to the pools of other ways.
    """

    task: Task
    trainings: Trainings
    seed: int
    price: float
    stages: Stages
    pooled: Mapping[str, int] = field(default_factory=lambda: POOLED)

    def __post_init__(self) -> None:
        count = max(trials_of(self.stages), *self.pooled.values())
        self.proposals = sample(self.task.spec(seed=self.seed), count)
        self.slot = self.task.event(self.proposals[0], 1.0)

    def in_slot(self, slot: PoissonGaussian, proposal: Proposal) -> tuple[Scored, PoissonGaussian]:
        """Train a configuration in a slot, with the least noise that the slot allows it."""
        event = self.task.event(proposal, 1.0)
        noise = dominated_noise_multiplier(slot, event.sampling_rate, event.steps, self.task.delta)
        scores = self.trainings.scores(self.task, proposal, noise, self.seed)
        return scores, self.task.event(proposal, noise)

    def slots(self, stages: Stages) -> tuple[PoissonGaussian, ...]:
        """The slots of stages."""
        steps = SPARE_EPOCHS * round(1.0 / self.slot.sampling_rate)
        return cut(self.slot, stages, steps, self.price, self.task.delta)

    def each(self) -> list[Scored]:
        """Configurations at the whole price."""
        proposals = self.proposals[: self.pooled["each P"]]
        return [self.trainings.scores(self.task, one, self._noise(one), self.seed) for one in proposals]

    def total(self) -> list[Scored]:
        """Configurations at a share of the price that lets as many be trained as in all stages."""
        (slot,) = self.slots(((trials_of(self.stages), 1.0),))
        return [self.in_slot(slot, proposal)[0] for proposal in self.proposals[: self.pooled["total P"]]]

    def candidates(self) -> list[Scored]:
        """Candidates of a private selection."""
        slot = candidate(self.slot, self.price, self.task.delta)
        return [self.in_slot(slot, proposal)[0] for proposal in self.proposals[: self.pooled["selection"]]]

    def affordable(self) -> tuple[list[Scored], Scored]:
        """The points of the explorers first trained, and those of all trials in the slots of the stages."""
        slots, every = self.slots(self.stages), list[Explored]()
        live: list[Proposal] = list(self.proposals[: self.stages[0][0]])
        points: list[list[Scored]] = []
        for number, slot in enumerate(slots):
            found = [self.in_slot(slot, proposal) for proposal in live]
            points.append([scores for scores, _ in found])
            every += [self._explored(one, number, *of) for one, of in zip(live, found, strict=True)]
            if number + 1 < len(slots):
                following, count = slots[number + 1], self.stages[number + 1][0]
                live = list(
                    finalists(
                        every,
                        self.task.spec().space,
                        self.task.spec().objectives,
                        count=count,
                        loudness=loudness(following),
                    )
                )
        return points[0], Scored.joined([one for stage in points for one in stage])

    def rehearsed(self) -> tuple[list[Scored], Scored]:
        """Rehearsals of as many configurations as the stages have trials, and the best one trained at the price."""
        proposals = self.proposals[: trials_of(self.stages)]
        noises = [self._noise(proposal) for proposal in proposals]
        seen = [
            self.trainings.rehearsed(self.task, proposal, noise, self.seed)
            for proposal, noise in zip(proposals, noises, strict=True)
        ]
        aloud = [self.task.event(proposal, noise) for proposal, noise in zip(proposals, noises, strict=True)]
        every = [
            replace(self._explored(proposal, 0, scores, event), loudness=1.0)
            for proposal, scores, event in zip(proposals, seen, aloud, strict=True)
        ]
        (best,) = finalists(every, self.task.spec().space, self.task.spec().objectives, count=1, loudness=1.0)
        return seen, self.trainings.scores(self.task, best, self._noise(best), self.seed)

    def _noise(self, proposal: Proposal) -> float:
        event = self.task.event(proposal, 1.0)
        return noise_multiplier_for(self.price, self.task.delta, event.sampling_rate, event.steps)

    def _explored(self, proposal: Proposal, stage: int, scores: Scored, event: PoissonGaussian) -> Explored:
        points = [dict(zip(self.task.names, row, strict=True)) for row in scores.validation.tolist()]
        return Explored(proposal=proposal, loudness=loudness(event), stage=stage, points=points)

    def ratio(self, stages: Stages) -> float:
        """The price of everything over epsilon of one final."""
        return self.price / claim(self.slots(stages)[-1], self.task.delta).epsilon


@dataclass(frozen=True)
class Trained:
    """What one seed came to: the points of each training, by the way that it belongs to.

    The affordable and the rehearsed sweep are one each: the points of explorers or rehearsals, and those that leave.
    """

    each: list[Scored]
    total: list[Scored]
    candidates: list[Scored]
    affordable: tuple[list[Scored], Scored]
    rehearsed: tuple[list[Scored], Scored]

    @classmethod
    def of(cls, sweep: Sweep) -> "Trained":
        """Train all of it."""
        return cls(sweep.each(), sweep.total(), sweep.candidates(), sweep.affordable(), sweep.rehearsed())


@dataclass(frozen=True)
class Ways:
    """What each way came to.

    Attributes:
        found: mean figures of each way.
        errors: their standard errors over seeds; None of one seed.
        taus: Kendall's tau of the explorers' order against that of the same trained at P, mean over seeds.
        rehearsal_taus: the same of the rehearsals.
    """

    found: dict[str, Found]
    errors: dict[str, Found] | None
    taus: Floats
    rehearsal_taus: Floats


def compare(sweeps: Sequence[Sweep]) -> Ways:
    """Spend one price in every way."""
    trained, trials = [Trained.of(sweep) for sweep in sweeps], trials_of(sweeps[0].stages)
    found, errors = came_to(trained, trials), None
    if len(trained) > 1:
        without = [came_to([*trained[:i], *trained[i + 1 :]], trials) for i in range(len(trained))]
        errors = {way: Found.error([one[way] for one in without]) for way in found}
    taus = [
        np.mean([agreement(getattr(one, way)[0], one.each) for one in trained], axis=0)
        for way in ("affordable", "rehearsed")
    ]
    return Ways(found, errors, taus[0], taus[1])


def came_to(trained: Sequence[Trained], trials: int) -> dict[str, Found]:
    """The mean figures of each way.

    The affordable and the rehearsed sweep ran once for each seed. The other ways choose among independent
    configurations, so that those of all seeds are one pool, from which many sweeps are drawn.
    """
    rng = np.random.default_rng(0)
    aloud, shared, candidates = (
        [points for one in trained for points in getattr(one, name)] for name in ("each", "total", "candidates")
    )
    return {
        "affordable": Found.mean([Found.of(one.affordable[1]) for one in trained]),
        "each P": Found.mean([Found.of(Scored.joined(drawn(aloud, trials, rng))) for _ in range(DRAWN)]),
        "total P": Found.mean([Found.of(Scored.joined(drawn(shared, trials, rng))) for _ in range(DRAWN)]),
        "selection": Found.mean([Found.of(selected(candidates, rng)) for _ in range(DRAWN)]),
        "random": Found.mean([Found.of(one) for one in aloud]),
        "rehearsed": Found.mean([Found.of(one.rehearsed[1]) for one in trained]),
    }


def pools(seeds: int, trials: int) -> dict[str, int]:
    """How many configurations each seed adds to a pool, so that a whole sweep can be drawn from it."""
    return {way: max(count, -(-trials // seeds)) for way, count in POOLED.items()}


def drawn(pool: Sequence[Scored], count: int, rng: np.random.Generator) -> list[Scored]:
    """Some of the pool, each once; all of a pool that is smaller."""
    return [pool[i] for i in rng.permutation(len(pool))[:count]]


def selected(candidates: Sequence[Scored], rng: np.random.Generator) -> Scored:
    """The best of a number of candidates that is drawn."""
    return max(drawn(candidates, rng.geometric(1.0 / _REPETITIONS.mean), rng), key=lambda one: area(one.validation))


def trials_of(stages: Stages) -> int:
    """The number of trials of all stages."""
    return sum(trials for trials, _ in stages)


def agreement(explorers: Sequence[Scored], finals: Sequence[Scored]) -> list[float]:
    """Kendall's tau of the best accuracy of each, and of the best certified accuracy."""
    best = [np.array([one.validation.max(axis=0) for one in several]) for several in (explorers, finals)]
    count = min(map(len, best))
    taus = [kendalltau(best[0][:count, column], best[1][:count, column]).statistic for column in (0, 1)]
    return [float(np.nan_to_num(tau)) for tau in taus]
