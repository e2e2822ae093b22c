"""How long a sweep would take and how much memory, measured on rows of zeros: nothing of the data enters.

A few steps of each previewed configuration are trained, its scores computed once and the fixed features of some rows,
on rows of zeros of the shape and number of the real ones. The rest is multiplication. Metrics are taken to be computed
at every epoch, and the front to have `FRONT_POINTS` points. Plug-ins, AutoAttack, membership inference and a lack of
processors are not in it.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from statistics import fmean

import torch

import clipless
from clipless.attacks import PGD
from clipless.certificates.certify import float64_features
from clipless.datasets import Dataset, Split
from clipless.network import split_fixed_prefix
from sweeper.planning.preview import Preview
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.records import MEMBERSHIP
from sweeper.rounding import number_of
from sweeper.specification.objectives import ATTACKED, AUTOATTACKED
from sweeper.specification.plugins import is_metric
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_optimizer, build_plan
from sweeper.trials.free_points import free_points
from sweeper.trials.rehearsal import HALVES, MOST_SYNTHETIC, rehearsal_config
from sweeper.trials.scores import scorer
from sweeper.trials.settings import TrialSettings
from sweeper.trials.smoothed import SmoothedScorer

BATCHES = 2  # steps of an epoch that is measured
EPOCHS = 3  # of which the first warms up
TIMED_DRAWS = 500  # of one row, by which smoothed certificates are measured
FEATURE_ROWS = 256  # whose fixed features are measured, and attacks
FRONT_POINTS = 20  # of which test rows get smoothed certificates, if there are so many epochs
START_SECONDS = 8.0  # until the workers are up and the first trial trains, on a machine that does nothing else
_MEBIBYTE = 2**20
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024
# before any table is read: what reading one takes depends on every cell, and on how many rows units have
_LIBRARIES_BYTES = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a sweep would take on this machine."""

    step_seconds: float  # of one training step
    score_seconds: float  # of scores and metrics of one epoch, of those that cost nothing too
    trial_seconds: float  # of one trial, all its repeats
    trials: int
    places: int  # trials at a time
    process_bytes: int  # of the libraries in the process of one trial
    data_bytes: int  # of the rows, which all trials of a node share
    rehearsals: int = 0  # configurations that are rehearsed before the first trial
    rehearsal_seconds: float = 0.0  # of one of them
    test_passes: int = 0  # noisy copies of test rows for the smoothed certificates of one point of the front
    pass_seconds: float = 0.0  # of one of them, by the slowest of the measured models
    front_points: int = 0  # that get such certificates, supposed
    left_out: tuple[str, ...] = ()  # objectives and metrics whose time is not in it

    @property
    def seconds(self) -> float:
        """Of the whole sweep, without a private selection's luck and what is left out."""
        rehearsed = self.rehearsals / self.places * self.rehearsal_seconds
        trained = ceil(self.trials / self.places) * self.trial_seconds
        return START_SECONDS + rehearsed + trained + self.test_seconds

    @property
    def point_seconds(self) -> float:
        """Of the smoothed certificates of one point of the front on test rows."""
        return self.test_passes * self.pass_seconds

    @property
    def test_seconds(self) -> float:
        """Of those of the whole front."""
        return self.front_points * self.point_seconds


def estimate(plan: SweepPlan, data: Dataset, previews: Sequence[Preview]) -> Estimate:
    """Measure the previewed configurations on rows of zeros.

    Guarantees:
        Of the data only shapes, types, the number of units and the declarations are looked at; nothing is released.
        How many rows units have is private: times and memory are those of one row for each, and no memory is measured
        of a process that has read them.
    """
    empty = _zeros(data)
    threads = torch.get_num_threads()
    torch.set_num_threads(plan.shared.threads)
    try:
        measured = [
            (_step_seconds(_noised(one), empty), *_scoring_seconds(plan.shared, one.config, empty)) for one in previews
        ]
        rehearsed = [
            _rehearsal_seconds(plan, one, score, empty) for one, (_, score, _) in zip(previews, measured, strict=True)
        ]
        metrics = [_metric_seconds(plan.shared, one.config, empty) for one in previews]
        passes = [_test_passes(plan.shared, one.config, empty) for one in previews]
    finally:
        torch.set_num_threads(threads)
    trained = [
        features + one.plan.epochs * (one.plan.steps_per_epoch * step + score + metric)
        for one, (step, score, features), metric in zip(previews, measured, metrics, strict=True)
    ]
    test_passes, pass_seconds = max(passes)
    epochs = plan.trials * max(one.plan.epochs for one in previews)
    return Estimate(
        step_seconds=fmean(step for step, _, _ in measured),
        score_seconds=fmean(score for _, score, _ in measured) + fmean(metrics),
        trial_seconds=plan.shared.repeats * fmean(trained),
        trials=plan.trials,
        rehearsals=plan.rehearsals,
        rehearsal_seconds=fmean(rehearsed),
        places=_places(plan),
        process_bytes=_LIBRARIES_BYTES,
        data_bytes=sum(map(_bytes, (data.train, data.validation, data.test))),
        test_passes=test_passes,
        pass_seconds=pass_seconds,
        front_points=min(FRONT_POINTS, epochs) if test_passes else 0,
        left_out=tuple(filter(_is_left_out, _names(plan.shared))),
    )


def _rehearsal_seconds(plan: SweepPlan, one: Preview, score_seconds: float, empty: Dataset) -> float:
    """Return what the rehearsals of one configuration take: as many steps as a trial, on smaller batches."""
    if not plan.rehearsals:
        return 0.0
    public = len(empty.validation) // HALVES
    rows = max(1, public if plan.spending.sketch is None else min(len(empty.train), MOST_SYNTHETIC))
    step = _step_seconds(rehearsal_config(_noised(one), rows, len(empty.train)), empty)
    score = score_seconds * rows / len(empty.validation)
    return HALVES * one.plan.epochs * (one.plan.steps_per_epoch * step + score)


def in_words(found: Estimate) -> str:
    """Return an estimate as a few sentences."""
    rehearsed = f", {clock(found.rehearsal_seconds)} a rehearsal" if found.rehearsals else ""
    return (
        f"Estimated on rows of zeros on this machine: {found.step_seconds:.2g} s a step, {found.score_seconds:.2g} s "
        f"to score an epoch, {clock(found.trial_seconds)} a trial{rehearsed}. The sweep takes about "
        f"{clock(found.seconds - START_SECONDS)} once its workers are up, {number_of(found.places, 'trial')} at a "
        f"time{_left_out_in_words(found)}; their start takes about {START_SECONDS:.0f} s, more on a busy machine. "
        f"Memory: about {found.process_bytes / _MEBIBYTE:.0f} MiB for the libraries of each trial's process, and "
        f"{found.data_bytes / _MEBIBYTE:.1f} MiB for the rows, which they share.{_test_in_words(found)}"
    )


def _left_out_in_words(found: Estimate) -> str:
    return f", without {', '.join(found.left_out)}, which may take longer than all else" if found.left_out else ""


def _test_in_words(found: Estimate) -> str:
    if not found.test_passes:
        return ""
    return (
        " Smoothed certificates on test rows, after the last trial, are in this time with "
        f"{clock(found.test_seconds)}: {found.test_passes:,} passes for each point of the front, "
        f"about {clock(found.point_seconds)} of the slowest model, for {number_of(found.front_points, 'point')}; fewer "
        "with search.smoothing.test_draws and test_rows."
    )


def clock(seconds: float) -> str:
    """Return a time as ``4.2 s``, ``3:05`` or ``1:02:05``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _zeros(data: Dataset) -> Dataset:
    train, validation, test = map(_empty, (data.train, data.validation, data.test))
    # a block and a hash are of a row, and here each unit has one row
    return replace(data, train=train, validation=validation, test=test, blocks=None, hashes=None)


def _bytes(split: Split) -> int:
    entries = prod(split.x.shape[1:])
    return len(split) * (entries * split.x.element_size() + split.y.element_size())


def _empty(split: Split, rows: int | None = None) -> Split:
    """Return rows of zeros of which one is kept in memory, all of the first class."""
    count = len(split) if rows is None else rows
    x = torch.zeros((1, *split.x.shape[1:]), dtype=split.x.dtype).expand(count, *split.x.shape[1:])
    return Split(x, torch.zeros(count, dtype=split.y.dtype))


def _noised(one: Preview) -> TrialConfig:
    """Return the configuration of a preview with the noise multiplier that it planned."""
    noise = {"epsilon": None, "noise_multiplier": one.plan.noise_multiplier, "accept_large_delta": True}
    return one.config.model_copy(update={"privacy": one.config.privacy.model_copy(update=noise)})


def _step_seconds(config: TrialConfig, empty: Dataset) -> float:
    rows = max(1, min(len(empty.train), BATCHES * ceil(config.training.batch_size)))
    training = config.training.model_copy(update={"epochs": EPOCHS})
    short = config.model_copy(update={"training": training})
    loss = build_loss(short)
    model = build_model(short, empty, loss, 0)
    plan = build_plan(short, model, loss, rows)
    epochs = clipless.fit(
        model,
        loss,
        _empty(empty.train, rows),
        plan,
        optimizer=build_optimizer(short),
        micro_batch_size=training.micro_batch_size,
        ghost_clipping=bool(training.ghost_clipping),
        exact_norms=bool(training.exact_norms),
    )
    next(epochs)
    return min(_seconds(lambda: next(epochs)) for _ in range(EPOCHS - 1)) / plan.steps_per_epoch


def _scoring_seconds(shared: TrialSettings, config: TrialConfig, empty: Dataset) -> tuple[float, float]:
    """Return what scoring an epoch takes, and what the fixed features of a trial take before its first epoch."""
    loss, noise = build_loss(config), shared.noise
    model = build_model(config, empty, loss, 0)
    names = _names(shared)
    models = 1 + len(free_points(shared.free_points, empty.metadata, noise, names))
    part = _empty(empty.validation, min(FEATURE_ROWS, len(empty.validation)))
    prefix, _ = split_fixed_prefix(model)
    in_single, in_double = _seconds(lambda: prefix(part.x)), _seconds(lambda: float64_features(model, part.x))
    smoothed = SmoothedScorer((one.name for one in shared.objectives), empty.metadata, shared.smoothing)
    score, feature = scorer(empty.metadata, shared.radii, noise, smoothed=smoothed), float64_features(model, part.x[:1])
    features = feature.expand(len(empty.validation), *feature.shape[1:])  # rows are alike
    of_rows = (in_double * len(empty.validation) + in_single * len(empty.train)) / len(part)
    return models * _seconds(lambda: score(model, empty.validation, features)), of_rows


def _metric_seconds(shared: TrialSettings, config: TrialConfig, empty: Dataset) -> float:
    """Return what smoothed metrics and accuracy under attack take at an epoch.

    An attack takes all of its steps with every row, whatever they reach.
    """
    smoothed = SmoothedScorer(shared.metrics, empty.metadata, shared.smoothing)
    attacks = sum(name.startswith(ATTACKED) for name in shared.metrics)
    model = build_model(config, empty, build_loss(config), 0)
    seconds = _seconds(lambda: smoothed(model, empty.validation)) if smoothed.names else 0.0
    if attacks:
        whole, short = PGD(), PGD(steps=1, restarts=0)
        longer = (whole.steps + 1) * (whole.restarts + 1) / ((short.steps + 1) * (short.restarts + 1))
        few = _empty(empty.validation, min(FEATURE_ROWS, len(empty.validation)))
        once = _seconds(lambda: short(model, few.x, few.y, 1.0)) * len(empty.validation) / len(few)
        seconds += attacks * longer * once
    return seconds


def _names(shared: TrialSettings) -> tuple[str, ...]:
    return (*(one.name for one in shared.objectives), *shared.metrics)


def _is_left_out(name: str) -> bool:
    return name.startswith(AUTOATTACKED) or name in MEMBERSHIP or is_metric(name)


def _test_passes(shared: TrialSettings, config: TrialConfig, empty: Dataset) -> tuple[int, float]:
    """Return how many passes the smoothed certificates of a point take on test rows, and how long one takes."""
    names, plan = _names(shared), shared.smoothing
    passes = SmoothedScorer(names, empty.metadata, plan, test=True).passes(empty.test)
    if plan is None or not passes:
        return 0, 0.0
    few, one = replace(plan, test_rows=1, test_draws=min(TIMED_DRAWS, plan.test_draws)), _empty(empty.test, 1)
    timed = SmoothedScorer(names, empty.metadata, few, test=True)
    model = build_model(config, empty, build_loss(config), 0)
    return passes, _seconds(lambda: timed(model, one)) / timed.passes(one)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _places(plan: SweepPlan) -> int:
    fits = max(1, int((os.cpu_count() or 1) / plan.resources.cpus))
    return max(1, min(plan.resources.concurrent or fits, fits, max(plan.trials, plan.rehearsals)))
