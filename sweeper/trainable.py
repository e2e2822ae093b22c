"""The class that Ray Tune runs: a thin shell around `TrialRun`. Never computes anything itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ray import tune

from clipless.datasets import Dataset, load
from sweeper.space import resolve
from sweeper.spec import Spec
from sweeper.training import TrialRun

_LOADED: dict[tuple[str, str, str | None], Dataset] = {}  # the last data set: processes are reused within one sweep


class CliplessTrial(tune.Trainable):
    """One trial; its process is reused for the next one, which starts from nothing.

    Its configuration holds ``trial``, ``proposal`` (values of the open slots) and the constants ``spec``,
    ``source``, ``folder`` and ``data_dir``.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Forget everything; what may fail happens in `step`."""
        self._config = config
        self._rows: Iterator[dict[str, Any]] | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial in this process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Return the next row: the plan first, which draws no noise, then one epoch at a time."""
        if self._rows is None:
            run = self._build()
            self._rows = run.epoch_rows()
            return run.plan_row()
        return next(self._rows)

    def cleanup(self) -> None:
        """Let go of model and data."""
        self._rows = None

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
            seed=initial_seed(spec.search.seed, trial),
            folder=Path(config["folder"]),
            device="cuda" if spec.resources.gpus else "cpu",
        )


def initial_seed(seed: int, trial: str) -> int:
    """Return the seed of a trial's initial weights: another one for each trial, the same in each run of a sweep."""
    return seed * 1_000_003 + int(trial.removeprefix("t"))


def _loaded(settings: str, source: str, data_dir: str | None, spec: Spec) -> Dataset:
    key = (settings, source, data_dir)
    if key not in _LOADED:
        _LOADED.clear()
        _LOADED[key] = load(**spec.data_options(None if data_dir is None else Path(data_dir)))
    return _LOADED[key]
