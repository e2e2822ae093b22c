"""What an epsilon means to a person: the tables of `docs/choosing.md`, from the privacy profiles of trainings.

    python benchmarks/exposure.py [--rate 0.152] [--steps 140] [--delta 1e-5] [--epsilon 0.1 0.5 1 2 3 4 8]

For each epsilon, the noise is the least at which a training of these steps costs no more. Every number is an upper
bound and is rounded up.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from clipless.privacy.accounting.calibration import noise_multiplier_for
from clipless.privacy.accounting.tradeoff.group import expose
from clipless.privacy.accounting.tradeoff.profile import profile_event
from clipless.privacy.accounting.tradeoff.risk import pair_risk
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.exposure import FALSE_ALARMS, GROUPS, Exposure
from sweeper.rounding import round_up

EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0)
RATE, STEPS, DELTA = 0.152, 140, 1e-5


def expose_training(epsilon: float, rate: float = RATE, steps: int = STEPS, delta: float = DELTA) -> Exposure:
    """Return what a training of this epsilon means to a person."""
    relation = Relation.ADD_OR_REMOVE_ONE
    noise = noise_multiplier_for(epsilon, delta, rate, steps, relation)
    event = PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=steps, relation=relation)
    return expose(profile_event(event), delta, event)


def tables(exposures: Iterable[tuple[float, Exposure]], delta: float = DELTA) -> Iterator[str]:
    """Yield the lines of both tables: what is caught at 1 % false alarms, and everything else."""
    found = tuple(exposures)
    by_epsilon = "caught at 1 % false alarms, at most, by epsilon alone"
    yield from _head(["epsilon", by_epsilon, "by the profile of a training"])
    for epsilon, one in found:
        yield _row([f"{epsilon:g}", *map(_percent, (pair_risk(epsilon, delta).caught[1], one.risk.caught[1]))])
    yield ""
    alarms = [f"caught at {100 * rate:g} %" for rate in (FALSE_ALARMS[0], FALSE_ALARMS[2])]
    costs = [f"epsilon of {count} rows" for count in GROUPS]
    yield from _head(["epsilon", *alarms, *costs, "1 row moves", *(f"{count} rows" for count in GROUPS)])
    for epsilon, one in found:
        caught = map(_percent, (one.risk.caught[0], one.risk.caught[2]))
        shifts = map(_percent, (one.risk.advantage, *(group.shift for group in one.groups)))
        yield _row([f"{epsilon:g}", *caught, *(round_up(group.epsilon, 3) for group in one.groups), *shifts])


def _head(names: Sequence[str]) -> Iterator[str]:
    yield _row(names)
    yield f"|{'---|' * len(names)}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(probability: float) -> str:
    return f"{ceil(1000.0 * probability - 1e-9) / 10.0:.1f} %"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="What an epsilon means to a person.")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--delta", type=float, default=DELTA)
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    asked = parser.parse_args()
    exposures = ((epsilon, expose_training(epsilon, asked.rate, asked.steps, asked.delta)) for epsilon in asked.epsilon)
    print(*tables(exposures, asked.delta), sep="\n")


if __name__ == "__main__":
    main()
