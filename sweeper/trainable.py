"""The class that Ray Tune runs: a thin shell around `TrialRun`. Never computes anything itself."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ray import tune

from clipless.datasets import Dataset, load
from clipless.privacy.randomness import RandomSource
from clipless.training import default_micro_batch
from sweeper.errors import TrialError
from sweeper.space import resolve
from sweeper.spec import Spec
from sweeper.training import TrialRun

_LOADED: dict[tuple[str, str, str | None], Dataset] = {}  # the last data set: processes are reused within one sweep


class CliplessTrial(tune.Trainable):
    """One trial; its process is reused for the next one, which starts from nothing.

    Its configuration holds ``trial``, ``proposal`` (values of the open slots), ``recorded`` (the last epoch that the
    driver has) and the constants ``spec``, ``source``, ``folder`` and ``data_dir``. A trial that runs out of memory
    goes on from its last epoch with micro-batches of half the size.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Forget everything; what may fail happens in `step`."""
        self._config = config
        self._recorded = int(config["recorded"])
        self._micro_batch_size: int | None = None
        self._rows: Iterator[dict[str, Any]] | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial in this process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Return the next row: the plan first, which draws no noise, then one epoch at a time."""
        if self._rows is None:
            return self._begin()
        try:
            row = next(self._rows)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            row = self._begin_smaller()
        self._recorded = max(self._recorded, int(row["epoch"]))
        return row

    def cleanup(self) -> None:
        """Let go of model and data."""
        self._rows = None

    def _begin(self) -> dict[str, Any]:
        run = self._build()
        self._batch_size = max(1, int(run.plan.batch_size))
        self._rows = run.epoch_rows()
        return run.plan_row()

    def _begin_smaller(self) -> dict[str, Any]:
        spec = Spec.from_mapping(self._config["spec"], source=self._config["source"])
        device = "cuda" if spec.resources.gpus else "cpu"
        given = self._micro_batch_size or spec.training.micro_batch_size or default_micro_batch(device)
        tried = min(given, self._batch_size)
        if tried <= 1:
            raise TrialError("out of memory with micro-batches of one row; use a smaller model or more memory")
        self._micro_batch_size = tried // 2
        self._rows = None
        gc.collect()
        torch.cuda.empty_cache()
        return self._begin()

    def _build(self) -> TrialRun:
        config = self._config
        spec = Spec.from_mapping(config["spec"], source=config["source"])
        data = _loaded(json.dumps(config["spec"]["data"], sort_keys=True), config["source"], config["data_dir"], spec)
        trial = str(config["trial"])
        torch.set_num_threads(max(1, int(spec.resources.cpus)))
        return TrialRun(
            trial=trial,
            config=resolve(spec, config["proposal"]),
            data=data,
            objectives=spec.objectives,
            metrics=spec.search.metrics,
            seed=self.seed(spec, trial),
            folder=Path(config["folder"]),
            device="cuda" if spec.resources.gpus else "cpu",
            source=self.source(),
            repeats=spec.search.repeats,
            recorded=self._recorded,
            micro_batch_size=self._micro_batch_size,
        )

    def seed(self, spec: Spec, trial: str) -> int:
        """Return the seed of the initial weights: a public one, so that a sweep can be repeated."""
        return initial_seed(spec.search.seed, trial)

    def source(self) -> RandomSource | None:
        """Return where batches and noise come from: None for the secure generator; measurements count its draws."""
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory, on a GPU or elsewhere."""
    texts = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in texts)


def initial_seed(seed: int, trial: str) -> int:
    """Return the seed of a trial's initial weights: another one for each trial, the same in each run of a sweep."""
    return seed * 1_000_003 + int(trial.removeprefix("t"))


def _loaded(settings: str, source: str, data_dir: str | None, spec: Spec) -> Dataset:
    key = (settings, source, data_dir)
    if key not in _LOADED:
        _LOADED.clear()
        _LOADED[key] = load(**spec.data_options(None if data_dir is None else Path(data_dir)))
    return _LOADED[key]
