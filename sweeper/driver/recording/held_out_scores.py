"""The one look at the test split: scores of the points of the final front, paid for where its rows are private."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import clipless
from clipless.certificates.certify import float64_features
from clipless.datasets import Dataset
from clipless.errors import CliplessError
from clipless.network import Network, split_fixed_prefix
from clipless.saving import architecture
from sweeper.driver.recording.recorder import Recorder
from sweeper.records import Point
from sweeper.specification.objectives import is_scored_by_class, own_objectives
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.curves import release_curves, scores_of, temperature
from sweeper.trials.scores import class_counts, scorer
from sweeper.trials.settings import TrialSettings
from sweeper.trials.smoothed import SmoothedScorer


class _OverError(Exception):
    """Ends the measurement of a point, which nothing has paid for."""


def score_front(
    shared: TrialSettings,
    data: Dataset,
    folder: SweepFolder,
    recorder: Recorder,
    is_over: Callable[[], bool],
    show: Callable[[int, int, float], None] = lambda *_: None,
) -> Iterator[str]:
    """Score every point of the front that has no test scores yet, and yield why one has none, in one sentence each.

    The recorder takes what each score costs before the score. ``is_over`` is asked before each point, and between rows
    that get smoothed certificates, which cost nothing; true ends it, and what is scored is kept. ``show`` is given how
    many points are done, of how many, and the seconds that they took. Points that are paid for come in an order that
    is spread over the front, those of finals first: those for which there is room stand for it.
    """
    noise = shared.noise
    plug_ins, by_class = own_objectives(shared.objectives), is_scored_by_class(shared.objectives)
    names = [*(one.name for one in shared.objectives), *shared.metrics]

    def between() -> None:
        if is_over():
            raise _OverError

    smoothed = SmoothedScorer(names, data.metadata, shared.smoothing, test=True, between=between)
    score = scorer(data.metadata, shared.radii, noise, own=plug_ins, by_class=by_class, smoothed=smoothed, test=True)
    features = _Features(data.test.x)
    left = [point for point in recorder.records.archive.points if recorder.records.points[point.key].test is None]
    ordered = _by_model(left, recorder) if noise is None else _in_turn(left)
    begun = time.monotonic()
    for done, point in enumerate(recorder.records.points[one.key] for one in ordered):
        show(done, len(ordered), time.monotonic() - begun)
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
        own = features.of(model)
        if noise is not None and noise.curves is not None:
            probability = temperature(recorder.records.trials[point.trial].config)
            curves = release_curves(model, data.test, own, noise, data.metadata, temperature=probability)
            recorder.records.add_test(point, scores_of(curves, noise), curves=curves)
            continue
        try:
            scores = score(model, data.test, own)
        except _OverError:
            return
        classes = class_counts(model, data.test, data.metadata, features=own)
        recorder.records.add_test(point, scores, classes, errors=scores.errors, smoothed=scores.smoothed)


def _by_model(points: Sequence[Point], recorder: Recorder) -> list[Point]:
    """Return points in order, those of like models one after the other: many of them share their fixed first layers."""
    trials = recorder.records.trials
    return sorted(points, key=lambda point: (json.dumps(trials[point.trial].config.get("model")), point.key))


def _in_turn(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(point for final in (True, False) for point in spread(one for one in points if one.is_final is final))


class _Features:
    """Float64 features of rows, made again where the fixed first layers are others than those of the model before.

    Models of one trial share these layers, unless the trial began anew: its private statistics are then drawn again.
    """

    def __init__(self, x: Tensor) -> None:
        self._x = x
        self._layers: Mapping[str, Any] = {}
        self._state: dict[str, Tensor] = {}
        self._features: Tensor | None = None

    def of(self, model: Network) -> Tensor:
        """Return `float64_features` of the rows for a model."""
        prefix, _ = split_fixed_prefix(model)
        layers, state = architecture(prefix), prefix.state_dict()
        known = layers == self._layers and all(torch.equal(state[name], self._state[name]) for name in state)
        if self._features is None or not known:
            self._layers, self._state, self._features = layers, state, float64_features(model, self._x)
        return self._features


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
