"""The budget of a sweep that selects privately at a whisper and trains the configuration of the winner aloud.

Before any row is read it is cut into what every candidate of the selection may spend and one slot for the final, with
spare steps. Together they cost `clipless.privacy.accounting.selection_composed.explored_epsilon`, whatever the
selection has chosen for the final: the sweep releases the winner, the final, and nothing else of the candidates.
"""

import math
from dataclasses import replace

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian
from sweeper.privacy.budget import Budget, least_noise, make_stage, slots_epsilon
from sweeper.privacy.selection import Terms
from sweeper.specification.stages import StagePlan

_NEAR = 0.03  # step of the logarithm of the noise in a search that begins near its end


def cut_exploration(
    epsilon: float,
    delta: float,
    repetitions: Repetitions,
    trial: PoissonGaussian,
    *,
    share: float,
    spare: int = 0,
    scores: PoissonGaussian | None = None,
) -> Budget:
    """Cut a budget between candidates and one final, which run as many steps at the same sampling rate as ``trial``.

    The share of the signal, the sum over steps of ``(q / sigma)^2``, is that of the mean number of candidates together.

    Args:
        epsilon: of everything, at delta.
        delta: the probability the guarantee may fail with.
        repetitions: distribution of the number of candidates.
        trial: a trial of the sweep; its noise multiplier does not count.
        share: of the candidates, between 0 and 1.
        spare: further steps of the final.
        scores: what each candidate spends on scores of private validation rows, ``None`` where they are free.

    Raises:
        AccountingError: no noise that can be priced is enough, or the least is more than is needed.
    """
    plan = StagePlan(1, 1.0 - share)

    def cut(noise: float, scores: PoissonGaussian | None = None) -> Budget:
        whisper = replace(trial, noise_multiplier=noise * math.sqrt(repetitions.mean / share))
        terms = Terms(event=whisper, repetitions=repetitions, scores=scores)
        return Budget(epsilon=epsilon, delta=delta, stages=(make_stage(plan, trial, spare, noise),), selection=terms)

    def seen(noise: float) -> float:
        """Price it as if all candidates were seen, a mean number of them: quickly, and nearly right."""
        candidates = StagePlan(max(round(repetitions.mean), 1), share)
        stages = (make_stage(candidates, trial, 0, noise), make_stage(plan, trial, spare, noise))
        return slots_epsilon(stages, delta, delta)

    near = least_noise(seen, epsilon)
    return cut(least_noise(lambda noise: cut(noise).price, epsilon, near=near, step=_NEAR), scores)
