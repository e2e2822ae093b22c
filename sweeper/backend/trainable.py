"""One trial inside a worker: a thin shell around `TrialRun`, which computes nothing itself.

The driver puts the rows of the data set into memory that all workers of a node share: Ray's object store, or a file
without a name. Nothing may write to them. Ray is not imported here: a worker of a local sweep does without it.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import torch

from clipless.datasets import Dataset, Split
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import RandomSource
from clipless.stacks import Member
from clipless.training.memory import is_out_of_memory, release_memory
from clipless.training.private_training import Epoch
from sweeper.backend.devices import cap_memory, is_lost, placement
from sweeper.backend.placed_data import PlacedDataset
from sweeper.backend.storage import SharedFolder
from sweeper.backend.trial_states import TrialStart
from sweeper.errors import TrialError
from sweeper.privacy.spending import Spending
from sweeper.trials.build import initial_seed, with_noise_of
from sweeper.trials.rehearsal import HALVES, rehearsal_config, rehearsal_halves
from sweeper.trials.settings import TrialSettings
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow, TrialRow
from sweeper.trials.trial import TrialRun, seed_of

_LOADED: list[tuple[Any, Dataset]] = []  # the last one: processes are reused in one sweep
_HALVES: list[tuple[Dataset, tuple[Dataset, Dataset]]] = []  # likewise: trainings on one half share its rows


class Constants(TypedDict):
    """What the configuration of every trial of a run holds, but for the data."""

    settings: TrialSettings
    spending: Spending  # whose slots may give the noise
    folder: str  # of the sweep
    storage: str | None  # URL through which nodes exchange files where they share no disk


class PlacedConstants(Constants):
    """What the configuration of every trial of a run holds."""

    data: Any  # a `PlacedDataset`, or a reference to one in Ray's object store


class TrialSetup(TrialStart, PlacedConstants):
    """The configuration of a trial."""


class CliplessTrial:
    """One trial; its process is reused for the next one, which starts from nothing.

    A trial that runs out of memory all the same goes on from its last epoch with micro-batches of half the size.

    It has more than fifteen methods: Ray Tune asks by some, stacks by others, and kinds of trials override some.
    """

    def setup(self, config: TrialSetup) -> None:
        """Forget everything; what may fail happens in `step`."""
        self._config = config
        self._recorded = config["recorded"]
        self._micro_batch_size: int | None = None
        self._run: TrialRun | None = None
        self._attempt = ""  # the last one that has a plan
        self._rows: Iterator[EpochRow] | None = None
        self._shared = self._shared_folder()

    def reset_config(self, new_config: TrialSetup) -> bool:
        """Start another trial in this process."""
        self.setup(new_config)
        return True

    def step(self) -> TrialRow:
        """Return the next row: the plan, then the first draw of noise, then one epoch at a time."""
        if self._run is None:
            return self._begin()
        if self._rows is None:  # what is drawn from the next step on is charged once the driver has taken this row
            self._rows = self._run.epoch_rows()
            return FirstDrawRow()
        try:
            row: TrialRow = next(self._rows)
        except (MemoryError, RuntimeError) as error:
            end_if_lost(error)
            if not is_out_of_memory(error):
                raise
            row = self._begin_smaller(self._run)
        if isinstance(row, EpochRow):
            self._note_report(row)
        return row

    def member(self) -> Member | None:
        """Return the member of a stack that this trial is, once it has a plan; ``None`` if it trains alone."""
        return None if self._run is None else self._run.member()

    @property
    def stack_rows(self) -> tuple[Split, int | None]:
        """The rows that a stack trains on, and how many of them a pass may take."""
        return self._planned.train, self._planned.micro_batch_size

    @property
    def scored_rows(self) -> Split | None:
        """The rows that score all members of a stack in one pass; ``None`` if each member has its own pass."""
        return self._planned.scored

    @property
    def is_over(self) -> bool:
        """Whether the driver has the last epoch that it planned."""
        return self._recorded >= self._planned.plan.epochs

    def held(self) -> int:
        """Return the epoch of its checkpoint, 0 without one."""
        return self._planned.held()

    def epoch_row(self, epoch: Epoch) -> EpochRow | None:
        """Return the row of an epoch of its stack; ``None`` if the driver has that epoch."""
        if epoch.epoch <= self._recorded:
            return None
        row = self._planned.epoch_row([epoch])
        self._note_report(row)
        return row

    def begin_again(self) -> PlanRow:
        """Begin another attempt from the last checkpoint, and return its plan row."""
        self._rows = self._run = None
        release_memory()
        return self._begin()

    def cleanup(self) -> None:
        """Let go of model and data."""
        self._rows = self._run = None
        if self._shared is not None:
            self._shared.close()

    @property
    def _planned(self) -> TrialRun:
        if self._run is None:
            raise TrialError("it has not reported its plan")
        return self._run

    def _note_report(self, row: EpochRow) -> None:
        self._recorded = max(self._recorded, row.epoch)
        if self._shared is not None:
            self._shared.share(row.models, self._attempt)

    def _shared_folder(self) -> SharedFolder | None:
        before = getattr(self, "_shared", None)
        if before is not None:
            before.close()
        url = self._config.get("storage")
        return None if url is None else SharedFolder(url, self._config["trial"])

    def _begin(self) -> PlanRow:
        gpus = self._settings.gpus
        cap_memory(gpus)
        if self._shared is not None:
            self._shared.fetch()
        run = self._build()
        self._run = run
        row = replace(run.plan_row(), placed=placement(gpus))
        self._attempt = row.attempt
        return row

    def _begin_smaller(self, run: TrialRun) -> PlanRow:
        tried = run.rows_per_pass
        if tried <= 1:
            raise TrialError("out of memory with micro-batches of one row; use a smaller model or more memory")
        run.note_lack_of_room()
        self._micro_batch_size = tried // 2
        del run
        return self.begin_again()

    def _build(self) -> TrialRun:
        config, settings = self._config, self._settings
        data = _load_dataset(config["data"])
        trial = config["trial"]
        torch.set_num_threads(settings.threads)
        return TrialRun(
            trial=trial,
            config=settings.space.resolve(config["proposal"]),
            data=data,
            objectives=settings.objectives,
            metrics=settings.metrics,
            seed=self.seed(trial),
            folder=Path(config["folder"]) if self._shared is None else self._shared.path,
            device=settings.device,
            source=self.source(),
            repeats=settings.repeats,
            slot=self._slot(trial),
            recorded=self._recorded,
            micro_batch_size=self._micro_batch_size,
            noise=settings.noise,
            most_scores=self._most_scores(trial),
            free=settings.free_points,
            smoothing=settings.smoothing,
            front=config["front"],
        )

    @property
    def _settings(self) -> TrialSettings:
        return self._config["settings"]

    def _slot(self, trial: str) -> PoissonGaussian | None:
        return self._config["spending"].slot_of(trial)

    def _most_scores(self, trial: str) -> int | None:
        noise, spending = self._settings.noise, self._config["spending"]
        return None if noise is None else spending.most_scores(trial, noise)

    def seed(self, trial: str) -> int:
        """Return the seed of the initial weights: a public one, so that a sweep can be repeated."""
        return initial_seed(self._settings.space.seed, trial)

    def source(self) -> RandomSource | None:
        """Return where batches and noise come from: None for the secure generator; measurements count its draws."""
        return None


class Rehearsal(CliplessTrial):
    """A training on one half of the public validation rows; only its scores are kept.

    Rehearsals are numbered from 1: a configuration on one half, the same one on the other, and so on.
    """

    def _build(self) -> TrialRun:
        config, settings = self._config, self._settings
        number = int(config["trial"].removeprefix("r")) - 1
        torch.set_num_threads(settings.threads)
        data, chosen = _load_dataset(config["data"]), settings.space.resolve(config["proposal"])
        slot = config["spending"].final_slot
        if slot is not None:
            chosen = with_noise_of(slot, chosen, data, repeats=settings.repeats)
        halves = _split_in_halves(data)[number % HALVES]
        chosen = rehearsal_config(chosen, len(halves.train), len(data.train))
        return TrialRun(
            trial=config["trial"],
            config=chosen,
            data=halves,
            objectives=settings.objectives,
            seed=seed_of(settings.space.seed, number),
            device=settings.device,
            recorded=self._recorded,
            micro_batch_size=self._micro_batch_size,
            free=settings.free_points,
            smoothing=settings.smoothing,
        )


def end_if_lost(error: BaseException) -> None:
    """End this process as a crash does if an error says that its device is lost: no trial can train here any more.

    The driver starts its trials again in another one, each from its last epoch.
    """
    if is_lost(error):
        logging.getLogger(__name__).error("the device is lost, this process ends: %s", type(error).__name__)
        os._exit(1)


def _load_dataset(placed: Any) -> Dataset:
    if not (_LOADED and _LOADED[0][0] == placed):
        _LOADED.clear()
        _LOADED.append((placed, (placed if isinstance(placed, PlacedDataset) else _fetch(placed)).dataset()))
    return _LOADED[0][1]


def _fetch(reference: Any) -> PlacedDataset:
    import ray

    found: PlacedDataset = ray.get(reference)
    return found


def _split_in_halves(data: Dataset) -> tuple[Dataset, Dataset]:
    if not (_HALVES and _HALVES[0][0] is data):
        _HALVES[:] = [(data, rehearsal_halves(data))]
    return _HALVES[0][1]
