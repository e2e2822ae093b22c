from dataclasses import replace

import pytest

from sweeper.records import ScorePlan, Trial


@pytest.fixture
def make_trial(plan):
    """Make a completed trial of one epoch that spends an event; with so many repeats, and scores of private rows."""

    def make(number, event, *, repeats=1, score_noise=None):
        scores = None
        if score_noise is not None:
            scores = ScorePlan(
                names=("accuracy",),
                noise_multiplier=score_noise,
                apart=True,
                std={"validation": 0.1},
                rows={"validation": 100},
                epochs=(1,),
            )
        planned = replace(
            plan,
            event=event,
            epochs=1,
            steps_per_epoch=event.steps,
            noise_multiplier=event.noise_multiplier,
            repeats=repeats,
            scores=scores,
        )
        return Trial(id=f"t{number:04d}", config={}, plan=planned)

    return make
