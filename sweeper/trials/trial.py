"""One trial, from its configuration to its rows: what runs inside a worker, without Ray.

How many rows a pass has room for is found before the plan, with rows of zeros. What leaves a trial is in its rows and
in the saved models: public numbers, scores on rows declared for evaluation, and released weights.
"""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

import clipless
from clipless.certificates.certify import float64_features
from clipless.certificates.outputs import Outputs
from clipless.datasets import Dataset, Split
from clipless.network import Network
from clipless.plans.placement import usual_size
from clipless.plans.plan import Plan
from clipless.plans.trainable import check_rows_apart
from clipless.privacy.accounting.claim import EpsilonClaim
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import RandomSource
from clipless.stacks import Member
from clipless.training.checkpoint import load_state
from clipless.training.memory import PassSizes, fits, memory_class
from clipless.training.placing import uses_features
from clipless.training.private_training import Epoch
from clipless.training.trainer import default_micro_batch
from sweeper.adapters import parse
from sweeper.pareto.dominance import FrontArchive
from sweeper.privacy.evaluation.paid_scores import ScoreNoise, scored_by, spread_epochs
from sweeper.privacy.pricing import steps_by
from sweeper.records import Objective, Point, TrialPlan
from sweeper.specification.objectives import is_scored_by_class, own_objectives, radii
from sweeper.specification.search import SmoothingPlan
from sweeper.specification.trial_config import TrialConfig
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.build import build_augmentation, build_loss, build_model, build_optimizer, build_plan, on_device
from sweeper.trials.free_points import free_points
from sweeper.trials.metrics import TrialMetrics
from sweeper.trials.scores import EpochScores, Scorer, mean_errors, scorer
from sweeper.trials.smoothed import SmoothedScorer
from sweeper.trials.stream import EpochRow, FreeRow, PlanRow

_ROOM = PassSizes()  # of this process: what one trial has found out, those like it need not
_MOST_PLACED = 3  # beside the newest: training and validation rows of two data sets
_PLACED: list[tuple[Split, str, Split]] = []


class Repeat:
    """One training of a configuration: its model, its plan, and where its state is kept."""

    def __init__(
        self,
        config: TrialConfig,
        data: Dataset,
        seed: int,
        device: str = "cpu",
        checkpoint: Path | None = None,
        slot: PoissonGaussian | None = None,
        repeats: int = 1,
    ) -> None:
        self.loss = build_loss(config)
        self.model = build_model(config, data, self.loss, seed).to(device)
        self.plan = build_plan(config, self.model, self.loss, len(data.train), slot, repeats=repeats)
        self.checkpoint = checkpoint
        self._features: Tensor | None = None

    @cached_property
    def held(self) -> int:
        """The epoch that the training goes on from, 0 for its beginning; looked at once: what is left is charged."""
        state = None if self.checkpoint is None else load_state(self.checkpoint, self.plan)
        return 0 if state is None else state.epoch

    def scores(self, split: Split, scorer: Scorer, outputs: Outputs | None = None) -> EpochScores:
        """Return accuracy and certificates, always on the same rows: of the outputs, or of the model as it is now."""
        if outputs is None and self._features is None:
            self._features = float64_features(self.model, split.x)
        return scorer(self.model, split, self._features, outputs=outputs)


class TrialRun:
    """One configuration on one data set.

    It is long, of more than fifteen methods, because one object holds the models whose every score is accounted for.

    Args:
        trial: id, names the saved models.
        data: its training split is trained on, its validation split scored; the test split is not touched.
        metrics: computed beside them: certificates at every epoch, attacks at the last one and at those that no
            earlier epoch of this trial dominates.
        seed: fixes the initial weights, and which rows membership inference looks at; nothing else.
        folder: where models are saved, ``None`` to save none.
        source: randomness of batches and noise; tests inject one.
        repeats: trainings of the configuration, epoch by epoch side by side, from other initial weights each. A row
            holds their means; the model that is kept is always the first one's, so that none is chosen.
        recorded: the last epoch that was reported by an earlier attempt; it and those before it are not reported again.
        micro_batch_size: instead of the configuration's.
        slot: of the sweep's budget, which this trial fills; it gives the noise, where there is one.
        noise: of the scores, where the validation rows are private. The scores of an epoch are then one release for
            each repeat, and nothing else that depends on these rows is looked at.
        most_scores: how many epochs are scored where scores are noisy, ``None`` for all; the others report their
            epsilon alone.
        free: whether models made from the iterates are scored too, see `sweeper.trials.free_points`; None where that is
            cheap.
        smoothing: how smoothed certificates are made; those of objectives are at every epoch, those of metrics with the
            attacks.
        front: values of points of other trials; the model of a point that one of them dominates is not saved.

    Attributes:
        train: the rows it is trained on, on its device; trials of one process share them.
        micro_batch_size: the most rows of a pass that were asked for.
        rows_per_pass: how many it takes.

    Raises:
        SpecError: a configuration that cannot be trained, or private validation rows without noise.
        clipless.errors.CliplessError: one that cannot be planned.
    """

    def __init__(
        self,
        *,
        trial: str,
        config: TrialConfig,
        data: Dataset,
        objectives: Sequence[Objective],
        metrics: Sequence[str] = (),
        seed: int,
        folder: Path | None = None,
        device: str = "cpu",
        source: RandomSource | None = None,
        repeats: int = 1,
        recorded: int = 0,
        micro_batch_size: int | None = None,
        slot: PoissonGaussian | None = None,
        noise: ScoreNoise | None = None,
        most_scores: int | None = None,
        free: bool | None = False,
        smoothing: SmoothingPlan | None = None,
        front: Sequence[Mapping[str, float]] = (),
    ) -> None:
        self._trial, self._config, self._data = trial, config, data
        named = radii([*objectives, *map(Objective.named, metrics)])
        self._noise = noise
        own = own_objectives(objectives)
        by_class = is_scored_by_class(objectives)
        smoothed = SmoothedScorer((one.name for one in objectives), data.metadata, smoothing)
        self._score = scorer(data.metadata, named, noise, own=own, by_class=by_class, smoothed=smoothed, source=source)
        self._looks_at_models = bool(own or smoothed.names)
        self._is_paid, self._most_scores = noise is not None, most_scores
        self._archive, self._objectives = FrontArchive(objectives), tuple(objectives)
        self._kept = FrontArchive(objectives)
        self._kept.add(Point(trial="", epoch=number, values=values) for number, values in enumerate(front))
        self._averages = free_points(free, data.metadata, noise, [*(one.name for one in objectives), *metrics])
        self._folder, self._device, self._source = folder, device, source
        self._recorded = recorded
        self.micro_batch_size = micro_batch_size or config.training.micro_batch_size
        if device != "cpu":  # private training refuses it: its rounding is larger than the noise covers
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._repeats = [
            Repeat(config, data, seed_of(seed, number), device, self._checkpoint(number), slot, repeats)
            for number in range(repeats)
        ]
        self._metrics = TrialMetrics(metrics, data.metadata, self._repeats[0].loss, seed=seed, smoothing=smoothing)
        self._augmentation = build_augmentation(config, data)
        self.train, self._validation = (_shared(split, device) for split in (data.train, data.validation))
        self._copies = 1 if self._augmentation is None else self._augmentation.copies
        self._room_key = self._key_of_room()
        self.rows_per_pass = self._find_room()
        check_rows_apart(self.model, [self.rows_per_pass])  # before anything is charged

    @property
    def model(self) -> Network:
        """The model that is kept."""
        return self._repeats[0].model

    @property
    def scored(self) -> Split | None:
        """The rows on which a stack may look at its models beside others.

        None where more than outputs is scored, and where scores are paid: each answer is then to be one row's own.
        """
        return None if self._looks_at_models or self._is_paid else self._validation

    @property
    def plan(self) -> Plan:
        """Of each training."""
        return self._repeats[0].plan

    @property
    def _scored_epochs(self) -> tuple[int, ...]:
        return spread_epochs(self.plan.epochs, self._most_scores)

    def _find_room(self) -> int:
        """Return how many rows a pass takes: as many as wanted, or halved until they have room."""
        wanted = max(1, (self.micro_batch_size or default_micro_batch(self._device)) // self._copies)
        device = self.train.x.device
        most = usual_size(self.plan.batch_size, self.plan.population, wanted, device) * self._copies
        rows = _ROOM.rows(self._room_key, most, self._has_room)
        if rows < most:
            self.micro_batch_size = rows
        return rows

    def _key_of_room(self) -> tuple[Hashable, ...]:
        chosen = self._config.to_json()
        kept = {name: chosen["training"].get(name) for name in ("method", "loss", "ghost_clipping", "exact_norms")}
        model = json.dumps([chosen["model"], kept], sort_keys=True)
        shape = tuple(self.train.x.shape[1:])
        return (model, shape, self._augmentation is None, len(self._repeats), *memory_class(self.train.x.device))

    def _has_room(self, rows: int) -> bool:
        training, repeat = self._config.training, self._repeats[0]
        return fits(
            repeat.model,
            repeat.loss,
            repeat.plan,
            self.train,
            rows,
            augmented=not uses_features(self.train, self._augmentation),
            ghost=bool(training.ghost_clipping),
            exact=bool(training.exact_norms),
            trainings=len(self._repeats),
        )

    def note_lack_of_room(self) -> None:
        """Remember that a pass ran out of memory all the same, for this trial and the next ones like it."""
        _ROOM.note(self._room_key, self.rows_per_pass)

    def plan_row(self) -> PlanRow:
        """Return the plan, with what each epoch costs, and the steps that were kept of it."""
        plan = parse(
            TrialPlan,
            self.plan.to_json()
            | {
                "secure_generator": self._source is None or self._source.secure,
                "epsilon_curve": self.plan.epsilon_curve(),
                "accountants": _by_accountant(self.plan.claims()),
                "risks": self.plan.risks(),
                "repeats": len(self._repeats),
                "scores": None if self._noise is None else self._noise.plan(self._scored_epochs),
            },
        )
        kept = sum(steps_by(plan, held) for repeat in self._repeats if (held := repeat.held))
        return PlanRow(attempt=uuid4().hex, plan=plan, kept=kept, scores_kept=scored_by(plan, self.first() - 1))

    def first(self) -> int:
        """Return the first epoch that it reports: none that was reported before, nor one before its checkpoints."""
        return max(self._recorded + 1, *(repeat.held for repeat in self._repeats))

    def held(self) -> int:
        """Return the epoch that it goes on from, 0 for its beginning."""
        return max(repeat.held for repeat in self._repeats)

    def member(self) -> Member | None:
        """Return its training as a stack takes it; ``None`` where it is trained alone: repeats, or ghost clipping."""
        if len(self._repeats) > 1 or self._config.training.ghost_clipping:
            return None
        repeat = self._repeats[0]
        return Member(model=repeat.model, loss=repeat.loss, plan=repeat.plan, **self._options(repeat))

    def epoch_rows(self) -> Iterator[EpochRow]:
        """Train, and yield the row of each epoch; its model is saved if no earlier one of this attempt was better."""
        first, trainings = self.first(), [self._training(repeat) for repeat in self._repeats]
        for number in range(first, self.plan.epochs + 1):
            yield self.epoch_row([next(one for one in training if one.epoch == number) for training in trainings])

    def epoch_row(self, epochs: Sequence[Epoch]) -> EpochRow:
        """Score the models of an epoch, one for each repeat, and return its row."""
        last = epochs[0].epoch == self.plan.epochs
        if self._is_paid and epochs[0].epoch not in self._scored_epochs:
            return EpochRow(epoch=epochs[0].epoch, values={"epsilon": epochs[0].epsilon})
        row, _ = self._scored(epochs, self._validation, measured=last)
        return EpochRow(
            epoch=epochs[0].epoch,
            values={"epsilon": epochs[0].epsilon, **row.values},
            repeats=row.repeats,
            errors=row.errors,
            model=row.model,
            done=last,
            free=tuple(self._free_rows(epochs, self._validation)),
        )

    def _free_rows(self, epochs: Sequence[Epoch], validation: Split) -> Iterator[FreeRow]:
        """Score what is made from the iterates of each repeat; yield what adds to the front of this trial."""
        for name in self._averages:
            row, entered = self._scored(epochs, validation, made_from=name)
            if entered:
                yield row

    def _scored(
        self, epochs: Sequence[Epoch], validation: Split, *, made_from: str = "", measured: bool = False
    ) -> tuple[FreeRow, bool]:
        """Score the models of an epoch; return what they reach, and whether that is on the front of this trial.

        What a model made from iterates reaches no better than another point is not on it. The models hold what is
        scored only where they are looked at themselves.
        """
        with ExitStack() as shown:
            outputs = [None if self._looks_at_models else epoch.outputs.get(made_from) for epoch in epochs]
            is_shown = None in outputs
            if is_shown:
                _show(shown, epochs, made_from)
            found = [
                repeat.scores(validation, self._score, one) for repeat, one in zip(self._repeats, outputs, strict=True)
            ]
            values = {"epsilon": epochs[0].epsilon, **_means(found)}
            point = Point(trial=self._trial, epoch=epochs[0].epoch, made_from=made_from, values=values)
            entered = not (made_from and self._is_reached(point)) and bool(self._archive.add([point])[0])
            if (entered or measured) and not is_shown:
                _show(shown, epochs, made_from)
            if entered or measured:
                for repeat, scores in zip(self._repeats, found, strict=True):
                    scores |= self._metrics.compute(repeat.model, scores, train=self.train, validation=validation)
            row = FreeRow(
                made_from=made_from,
                values=_means(found),
                repeats=_by_name(found) if len(found) > 1 else {},
                errors=mean_errors(found),
                model=self._save(point) if self._is_paid or (entered and self._kept.add([point])[0]) else None,
            )
        return row, entered

    def _is_reached(self, point: Point) -> bool:
        names = [objective.name for objective in self._objectives]
        return any(all(point.values[name] == one.values[name] for name in names) for one in self._archive.points)

    def _training(self, repeat: Repeat) -> Iterator[Epoch]:
        return clipless.fit(
            repeat.model,
            repeat.loss,
            self.train,
            repeat.plan,
            micro_batch_size=self.micro_batch_size,
            ghost_clipping=bool(self._config.training.ghost_clipping),
            **self._options(repeat),
        )

    def _options(self, repeat: Repeat) -> dict[str, Any]:
        """Return how it is trained, alone or in a stack."""
        training = self._config.training
        return {
            "optimizer": build_optimizer(self._config),
            "schedule": training.schedule,
            "averaging": training.averaging,
            "averages": self._averages,
            "exact_norms": bool(training.exact_norms),
            "augmentation": self._augmentation,
            "source": self._source,
            "checkpoint": repeat.checkpoint,
            "resumes_from": repeat.held,
        }

    def _checkpoint(self, number: int) -> Path | None:
        if self._folder is None:
            return None
        path = self._folder / SweepFolder.checkpoint_name(self._trial, number)
        path.parent.mkdir(exist_ok=True)
        return path

    def _save(self, point: Point) -> str | None:
        if self._folder is None:
            return None
        name = SweepFolder.model_name(*point.key)
        clipless.save(self.model, self._folder / name)
        return name


def _show(shown: ExitStack, epochs: Sequence[Epoch], made_from: str) -> None:
    """Let the models hold what is made from their iterates; they hold those of the epoch already."""
    for epoch in epochs if made_from else ():
        shown.enter_context(epoch.averages[made_from]())


def _shared(split: Split, device: str) -> Split:
    """Return rows on a device: the same ones for every trial of this process."""
    if device == "cpu":
        return split
    for given, where, placed in _PLACED:
        if given.x is split.x and where == device:
            return placed
    _PLACED[:] = [*_PLACED[-_MOST_PLACED:], (split, device, on_device(split, device))]
    return _PLACED[-1][2]


def seed_of(seed: int, repeat: int) -> int:
    """Return the seed of a repeat's initial weights: 32 bits, all that torch uses; the first repeat has the trial's."""
    return seed if repeat == 0 else int(np.random.SeedSequence([seed, repeat]).generate_state(1)[0])


def _by_accountant(claims: Sequence[EpsilonClaim]) -> dict[str, list[float]]:
    rdp = [one.rdp for one in claims if one.rdp is not None]
    return {"pld": [one.pld for one in claims], **({"rdp": rdp} if rdp else {})}


def _by_name(found: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(scores[name] for scores in found) for name in found[0]}


def _means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(values) for name, values in _by_name(found).items()}
