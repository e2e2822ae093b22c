"""What adaptive composition costs: the Gaussian filter beside lists that are fixed in advance.

    python benchmarks/gaussian_filter.py table       # trainings that fit, as in docs/mathematics.md
    python benchmarks/gaussian_filter.py adaptive    # 200 sequences that a policy chooses while it sees results
    python benchmarks/gaussian_filter.py loss        # what of that any filter loses that keeps one signal

``adaptive`` lets policies choose trainings and releases of scores of every size, by results drawn
for one of two neighbours, until nothing fits any more. For each sequence it prints how the epsilon that the filter
needs compares with that of the same list fixed in advance (pessimistic PLD), and it attacks all sequences of a policy
together: the log-likelihood ratio of everything seen is what the best attacker has.

``loss`` parts the ratio of what was used (the unused rest of the budget left out) in two. A Gaussian has to dominate
each mechanism at every epsilon, with the slack that the filter gives it: the smallest signal that does so at 45 of
them, of a loss distribution rounded down, is a lower bound for every filter of signals. What the filter takes beyond
that is its own; a part of it is the rounding of this bound.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.gaussian_filter import GaussianCost, GaussianFilter, needed_epsilon
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.gaussian import gaussian_divergence, largest_signal, smallest_epsilon

DELTA = 1e-5


def event(sampling_rate: float, noise: float, steps: int) -> PoissonGaussian:
    """Return a training, or releases of scores where every row takes part."""
    relation = Relation.ADD_OR_REMOVE_ONE
    return PoissonGaussian(noise_multiplier=noise, sampling_rate=sampling_rate, steps=steps, relation=relation)


TRAININGS = {
    "MNIST at 3": event(0.152, 2.70, 140),
    "MNIST at 1": event(0.152, 6.85, 140),
    "digits at 3": event(0.2, 3.57, 150),
    "a long training at 3": event(0.08, 5.06, 2000),
    "few loud steps at 6.2": event(0.3, 1.2, 15),
}
COUNTS = (1, 4, 12)


def table() -> None:
    """Print the signal of a training, and epsilons of one, four and twelve: by the filter, by Renyi, of a list."""
    print("training, its signal; epsilon of 1, 4 and 12 by the filter / Renyi at its best order / PLD of a fixed list")
    for name, training in TRAININGS.items():
        lists = [training.with_steps(count * training.steps) for count in COUNTS]
        cells = [
            f"{needed_epsilon([training] * count, DELTA):.3f} / {rdp_epsilon(whole, DELTA):.3f} / "
            f"{claim(whole, DELTA).epsilon:.3f}"
            for count, whole in zip(COUNTS, lists, strict=True)
        ]
        signal = math.sqrt(GaussianFilter(6.8, DELTA).cost(training).square)
        print(f"{name:24}", f"mu {signal:.3f}", *cells, sep="  ")


@dataclass(frozen=True)
class Kind:
    """A mechanism of a sequence, and its privacy losses on two neighbours."""

    event: PoissonGaussian

    def losses(self, draw: np.random.Generator, present: bool) -> float:
        """Draw what it shows and return the log-likelihood ratio of presence."""
        rate, sigma, steps = self.event.sampling_rate, self.event.noise_multiplier, self.event.steps
        taken = (draw.random(steps) < rate) & present
        seen = draw.normal(taken.astype(float), sigma)
        return float(np.log1p(rate * np.expm1((seen - 0.5) / sigma**2)).sum())


Policy = Callable[[np.random.Generator, float, float], int]  # of what was seen and of the share that is used


def policies(kinds: int) -> Sequence[Policy]:
    """Return ways to choose the next mechanism."""
    return (
        lambda draw, loss, used: int(draw.integers(kinds)),  # noqa: ARG005
        lambda draw, loss, used: int(draw.integers(kinds // 2) + (kinds // 2 if loss > 0 else 0)),  # noqa: ARG005
        lambda draw, loss, used: int(min(kinds - 1, abs(loss) * 2)),  # noqa: ARG005
        lambda draw, loss, used: int((kinds - 1) * used) if loss > 0 else int(draw.integers(kinds)),
    )


def make_kinds(draw: np.random.Generator, count: int, least_noise: float) -> list[Kind]:
    """Return mechanisms of any size: trainings, and releases of scores."""
    made = []
    for number in range(count):
        steps = int(np.exp(draw.uniform(0.0, np.log(400))))
        rate = 1.0 if number % 3 == 0 else float(np.exp(draw.uniform(np.log(0.02), np.log(0.5))))
        signal = float(np.exp(draw.uniform(np.log(0.03), np.log(0.6))))
        made.append(Kind(event(rate, max(least_noise, rate * math.sqrt(steps) / signal), steps)))
    return made


def adaptive(sequences: int, epsilon: float, least_noise: float) -> None:
    """Print ratios of epsilons, and what attacks on all sequences of a policy attain."""
    fixed = GaussianFilter(epsilon, DELTA)
    ratios: list[float] = []
    for number in range(sequences):
        draw = np.random.default_rng(number)
        kinds = make_kinds(draw, 8, least_noise)
        policy = policies(len(kinds))[number % 4]
        run, _ = follow(fixed, kinds, policy, draw, present=number % 8 < 4)
        listed = claim(Composed(tuple(run)), DELTA).epsilon
        ratios.append(fixed.epsilon / listed if fixed.share(map(fixed.cost, run)) > 0.9 else math.nan)
        if listed > epsilon:
            raise SystemExit(f"sequence {number} costs {listed} of {epsilon} as a fixed list")
    full = [ratio for ratio in ratios if not math.isnan(ratio)]
    print(
        f"{sequences} sequences, {len(full)} of which used more than 90 %: the filter's epsilon over the fixed list's"
    )
    print(f"median {median(full):.3f}, from {min(full):.3f} to {max(full):.3f}; never below 1")
    for number in range(4):
        attack(fixed, number, least_noise)


def follow(
    fixed: GaussianFilter, kinds: Sequence[Kind], policy: Policy, draw: np.random.Generator, *, present: bool
) -> tuple[list[PoissonGaussian], float]:
    """Run mechanisms until a choice and every smaller one do not fit; return them, and the log-likelihood ratio."""
    run: list[PoissonGaussian] = []
    costs, loss, used = [], 0.0, 0.0
    for _ in range(400):
        order = [policy(draw, loss, used), *sorted(range(len(kinds)), key=lambda i: -fixed.cost(kinds[i].event).square)]
        chosen = next((i for i in order if fixed.fits([*costs, fixed.cost(kinds[i].event)])), None)
        if chosen is None:
            break
        costs.append(fixed.cost(kinds[chosen].event))
        run.append(kinds[chosen].event)
        loss += kinds[chosen].losses(draw, present)
        used = fixed.share(costs)
    return run, loss


def attack(fixed: GaussianFilter, number: int, least_noise: float, times: int = 400) -> None:
    """Print, for a policy, what the best attack attains of the divergence that the filter allows."""
    kinds = make_kinds(np.random.default_rng(1000 + number), 8, least_noise)
    policy = policies(len(kinds))[number]
    losses = {
        present: np.array(
            [follow(fixed, kinds, policy, np.random.default_rng(i), present=present)[1] for i in range(times)]
        )
        for present in (True, False)
    }
    signal = math.sqrt(fixed.budget.square)
    for at in (0.0, 1.0, 2.0):
        allowed = gaussian_divergence(signal, at) + fixed.budget.slack
        for name, found in (("present", losses[True]), ("absent", -losses[False])):
            gains = np.maximum(-np.expm1(np.minimum(at - found, 0.0)), 0.0)
            low = gains.mean() - 3.0 * gains.std() / math.sqrt(times)
            if low > allowed:
                raise SystemExit(f"policy {number} attains {low} at epsilon {at}, allowed are {allowed}")
            print(f"policy {number}, {name}, epsilon {at:g}: {gains.mean():.4f} of {allowed:.4f}")


def least_square(part: PoissonGaussian, slack: float) -> float:
    """Return a lower bound of the square of the signal that dominates an event up to a slack."""
    if part.sampling_rate == 1.0:
        return part.steps / part.noise_multiplier**2
    given = {"sampling_prob": part.sampling_rate, "value_discretization_interval": 1e-4}
    one = from_gaussian_mechanism(part.noise_multiplier, pessimistic_estimate=False, use_connect_dots=False, **given)
    epsilons = [*np.linspace(0.0, 3.0, 25), *np.linspace(3.3, 9.0, 20)]
    deltas = one.self_compose(part.steps).get_delta_for_epsilon(epsilons)
    shown = [(at, (delta - slack) / (1.0 - slack)) for at, delta in zip(epsilons, deltas, strict=True)]
    return max((largest_signal(float(at), delta) for at, delta in shown if delta > 1e-14), default=0.0) ** 2


def loss(sequences: int, epsilon: float, least_noise: float) -> None:
    """Print, of sequences that policies choose, what every filter of signals loses, and what ours does beyond."""
    fixed, unavoidable, own = GaussianFilter(epsilon, DELTA), [], []
    for number in range(sequences):
        draw = np.random.default_rng(number)
        policy = policies(8)[number % 4]
        run, _ = follow(fixed, make_kinds(draw, 8, least_noise), policy, draw, present=number % 8 < 4)
        costs = {part: fixed.cost(part) for part in set(run)}
        taken = GaussianCost.total(costs[part] for part in run)
        squares = {part: least_square(part, cost.slack) for part, cost in costs.items()}
        least = math.sqrt(sum(squares[part] for part in run))
        ours, bound = (smallest_epsilon(mu, DELTA - taken.slack) for mu in (math.sqrt(taken.square), least))
        unavoidable.append(bound / claim(Composed(tuple(run)), DELTA).epsilon)
        own.append(ours / bound)
        print(f"sequence {number}: unavoidable {unavoidable[-1]:.4f}, own {own[-1]:.4f}", flush=True)
    print(f"median unavoidable {median(unavoidable):.4f}, own {median(own):.4f}, at most {max(own):.4f}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "adaptive", "loss"))
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--epsilon", type=float, default=6.8)
    parser.add_argument("--least-noise", type=float, default=0.7, help="multiplier; far from Gaussian below 2")
    given = parser.parse_args()
    if given.what == "table":
        table()
    elif given.what == "loss":
        loss(given.sequences, given.epsilon, given.least_noise)
    else:
        adaptive(given.sequences, given.epsilon, given.least_noise)


if __name__ == "__main__":
    main()
