"""The one look at the test split: scores of the points of the final front, paid for where its rows are private."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from torch import Tensor

import clipless
from clipless.certificates.certify import float64_features
from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper.driver.recording.recorder import Recorder
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.records import Point
from sweeper.specification.objectives import own_objectives
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.curves import release_curves, scores_of, temperature
from sweeper.trials.scores import class_counts, scorer


def score_front(
    spec: Spec, data: Dataset, folder: SweepFolder, recorder: Recorder, is_over: Callable[[], bool]
) -> Iterator[str]:
    """Score every point of the front that has no test scores yet, and yield why one has none, in one sentence each.

    The recorder takes what each score costs before the score. ``is_over`` is asked before each point; true ends it.
    Points that are paid for come in an order that is spread over the front: those for which there is room stand for it.
    """
    noise = ScoreNoise.of(spec, data)
    score = scorer(data.metadata, spec.radii, noise, own=own_objectives(spec.objectives), test=True)
    features: dict[str, Tensor] = {}  # of one trial: its models share their fixed first layers
    front = [recorder.records.points[point.key] for point in recorder.records.archive.points]
    left = [point for point in front if point.test is None]
    for point in sorted(left, key=lambda point: point.key) if noise is None else spread(left):
        if is_over():
            return
        none = f"No test scores for trial {point.label}"
        try:
            model = clipless.load(folder.path / str(point.model))
        except CliplessError as error:
            yield f"{none}: {error}"
            continue
        refused = None if noise is None else recorder.spending.pay_test(point, noise.paid_test(1))
        if refused is not None:
            yield f"{none}: {refused}"
            continue
        if point.trial not in features:
            features = {point.trial: float64_features(model, data.test.x)}
        if noise is not None and noise.curves is not None:
            probability = temperature(recorder.records.trials[point.trial].config)
            curves = release_curves(
                model, data.test, features[point.trial], noise, data.metadata, temperature=probability
            )
            recorder.records.add_test(point, scores_of(curves, noise), curves=curves)
            continue
        scores = score(model, data.test, features[point.trial])
        classes = class_counts(model, data.test, data.metadata, features=features[point.trial])
        recorder.records.add_test(point, scores, classes)


def spread(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return points from both ends to the middles between them, by their epsilon: the first ones stand for all."""
    ordered = sorted(points, key=lambda point: (point.values.get("epsilon", 0.0), point.key))
    places, gaps = dict.fromkeys([0, len(ordered) - 1][: len(ordered)]), deque([(0, len(ordered) - 1)])
    while gaps:
        first, last = gaps.popleft()
        if last - first > 1:
            middle = (first + last) // 2
            places[middle] = None
            gaps.extend([(first, middle), (middle, last)])
    return tuple(ordered[place] for place in places)
