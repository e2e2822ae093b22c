r"""Runs of a private selection, simulated with planted orders of the candidates' outcomes.

The best of K independent candidates leaves, K secret with generating function phi. With Q(> w) the chance that a
candidate is ranked above w, the winner has the law phi'(Q(<= w)) Q(dw), so the likelihood ratio of the winner is that
of its own training times phi'(P(<= w)) / phi'(Q(<= w)). Both chances are taken from candidates that are simulated for
nothing else. The price holds for every total order. The worst rank on top a block of outcomes that one world has more
often than the other, which makes another winner rarer there, and below it those that speak most for the latter; where
the block ends is learned from the same candidates. What leaves beside the winner, its final, is simulated with it.

Shapes: R runs, C candidates of all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian
from sweeper.audits.losses import losses
from sweeper.audits.lower_bound import Counts, Floats, RunScores

_REFERENCE = 200_000  # candidates of each world from which ranks are learned
_TOP = 1e6  # rank of a block on top
_MOST_NUMBER = 100_000  # of candidates in one run

Order = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class _World:
    """Runs in one world: (C,) losses of all candidates, run after run; (R,) their numbers, and what finals add."""

    losses: Floats
    numbers: Counts
    finals: Floats

    def won(self, order: Order) -> Floats:
        """Return (R,) losses of the winners."""
        rank_C, starts = order(self.losses), np.cumsum(self.numbers) - self.numbers
        best_C = np.repeat(np.maximum.reduceat(rank_C, starts), self.numbers)
        places = np.flatnonzero(rank_C == best_C)
        run_C = np.repeat(np.arange(len(self.numbers)), self.numbers)
        found = np.empty(len(self.numbers))
        found[run_C[places]] = self.losses[places]
        return found


def selection_scores(
    candidate: PoissonGaussian,
    repetitions: Repetitions,
    runs: int,
    generator: torch.Generator,
    final: PoissonGaussian | None = None,
) -> dict[str, RunScores]:
    """Return the adversary's scores of the winner, and its final, under each planted order."""
    worlds = [_simulate(candidate, repetitions, runs, generator, final, present=present) for present in (True, False)]
    known = tuple(losses(candidate, _REFERENCE, generator, present=present) for present in (True, False))
    found = {}
    for name, order in plant_orders(known[0], known[1], repetitions).items():
        ranks = [np.sort(order(loss)) for loss in known]
        found[name] = RunScores(*(_scores(world, order, ranks, repetitions) for world in worlds))
    return found


def plant_orders(present: Floats, absent: Floats, repetitions: Repetitions) -> dict[str, Order]:
    """Return orders of candidates by their losses, of which those with a block on top are near the worst there are."""
    low = _end_of_block(present, absent, repetitions)
    high = -_end_of_block(-absent, -present, repetitions)
    return {
        "ascending": lambda loss: loss,
        "descending": lambda loss: -loss,
        "from the ends": np.abs,
        "lowest on top, then ascending": lambda loss: np.where(loss <= low, _TOP - loss, loss),
        "highest on top, then descending": lambda loss: np.where(loss >= high, _TOP + loss, -loss),
    }


def _end_of_block(ours: Floats, other: Floats, repetitions: Repetitions) -> float:
    """Return up to where outcomes, if they came on top, would make all others rarest in the other world."""
    ours, other = np.sort(ours), np.sort(other)
    places = np.quantile(other, np.linspace(0.0, 1.0, 2001))
    above = (1.0 - np.searchsorted(world, places, side="right") / len(world) for world in (ours, other))
    gain = np.subtract(*(_log_slope(share, repetitions) for share in above))
    return float(places[int(np.argmax(gain))])


def _simulate(
    candidate: PoissonGaussian,
    repetitions: Repetitions,
    runs: int,
    generator: torch.Generator,
    final: PoissonGaussian | None,
    *,
    present: bool,
) -> _World:
    number_R = _numbers(repetitions, runs, generator)
    loss_C = losses(candidate, int(number_R.sum()), generator, present=present)
    final_R = np.zeros(runs) if final is None else losses(final, runs, generator, present=present)
    return _World(loss_C, number_R, final_R)


def _numbers(repetitions: Repetitions, runs: int, generator: torch.Generator) -> Counts:
    """Return (R,) numbers of candidates, by the law as it is declared."""
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    counts: Counts = np.minimum(rng.geometric(repetitions.gamma, runs), _MOST_NUMBER).astype(np.int64)
    return counts


def _scores(world: _World, order: Order, ranks: list[Floats], repetitions: Repetitions) -> Floats:
    won_R = world.won(order)
    below = (np.searchsorted(rank, order(won_R), side="right") / len(rank) for rank in ranks)
    ratio_R = won_R + np.subtract(*(_log_slope(share, repetitions) for share in below))
    found: Floats = ratio_R + world.finals
    return found


def _log_slope(z: Floats, repetitions: Repetitions) -> Floats:
    """Return the logarithm of phi' up to a constant."""
    found: Floats = -2.0 * np.log1p(-(1.0 - repetitions.gamma) * z)
    return found
