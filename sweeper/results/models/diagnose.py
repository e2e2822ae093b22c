"""Diagnosing one point of a sweep: its configuration rebuilt, its model looked at before and after training."""

from collections.abc import Mapping
from math import isclose
from pathlib import Path
from typing import Any

import clipless
from clipless.datasets import Dataset
from clipless.diagnostics import DEFAULT_ROWS, InputNorms, colour_norms, diagnose, input_norms, public_rows
from clipless.layers import InputBall
from clipless.network import Network
from clipless.plans.plan import Plan
from sweeper.errors import PickError, RecordError
from sweeper.planning.loaded import LoadedSpec
from sweeper.records import Point, Trial, TrialPlan
from sweeper.results.exporters import exporter
from sweeper.results.models.diagnosis import DiagnosedEpoch, Diagnosis
from sweeper.results.pick import pick
from sweeper.results.sweep import Sweep, load
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_plan, initial_seed

EXPORTER = "diagnostics"  # a function of (diagnostics.json, page to write)


def diagnose_sweep(
    directory: str | Path,
    *,
    trial: str | None = None,
    epoch: int | None = None,
    data_dir: Path | None = None,
    rows: int = DEFAULT_ROWS,
) -> Diagnosis:
    """Look at one point of a sweep on the validation rows of its data.

    By default it looks at the point that `pick` takes; of a trial, at the last epoch whose model was kept.

    Raises:
        PickError: no such point, or one without a model.
        RecordError: the sweep cannot be read, or its configuration no longer gives the plan that is recorded.
        clipless.errors.DataError: rows that are not public, or data that cannot be used.
    """
    sweep = load(directory)
    point = find_point(sweep, trial, epoch)
    recorded = sweep.folder.trials().get(point.trial)
    if recorded is None or recorded.plan is None:
        raise RecordError(f"Expected trial {point.trial} with its plan in {sweep.directory / 'trials.jsonl'}, got none")
    loaded = LoadedSpec.of(sweep.manifest().read_spec(), data_dir)
    data = loaded.data
    validation = public_rows(data)
    config = _with_noise(TrialConfig.from_json(recorded.config), recorded.plan)
    loss = build_loss(config)
    first = build_model(config, data, loss, initial_seed(loaded.spec.search.seed, point.trial))
    plan = build_plan(config, first, loss, len(data.train))
    _check_same_plan(plan, recorded)
    last = clipless.load(sweep.directory / str(point.model))
    looks = [
        DiagnosedEpoch(epoch=when, diagnostics=diagnose(model, loss, validation, plan, rows=rows))
        for when, model in ((0, first), (point.epoch, last))
    ]
    front = sweep.front()
    return Diagnosis(
        sweep=front.sweep,
        trial=point.trial,
        epoch=point.epoch,
        made_from=point.made_from,
        values=dict(point.values),
        delta=plan.delta,
        exploratory=front.claim.exploratory,
        data=data.metadata.name,
        method=plan.method,
        loss=config.training.loss.name,
        batch_size=plan.batch_size,
        noise_multiplier=plan.noise_multiplier,
        epochs=plan.epochs,
        input_radius=_input_radius(first),
        inputs=_measure_inputs(data, loaded.options),
        snapshots=tuple(looks),
    )


def _with_noise(config: TrialConfig, plan: TrialPlan) -> TrialConfig:
    """Return a configuration with the noise that its slot of a budget gave it, which no configuration has."""
    if config.privacy.epsilon is not None or config.privacy.noise_multiplier is not None:
        return config
    privacy = config.privacy.model_copy(update={"noise_multiplier": plan.noise_multiplier})
    return config.model_copy(update={"privacy": privacy})


def write_diagnosis(diagnosis: Diagnosis, page: Path) -> Path:
    """Write the page, by the installed exporter, and beside it the record, whose path is returned.

    Raises:
        SweeperError: no exporter is installed, or it could not write.
    """
    if page.suffix != ".html":
        raise RecordError(f"Expected a file name that ends in .html, got {page} (--output)")
    draw = exporter(EXPORTER)
    record = diagnosis.write(page.with_suffix(".json"))
    draw(record, page)
    return record


def find_point(sweep: Sweep, trial: str | None, epoch: int | None) -> Point:
    """Return the point that is asked for, whose model was kept.

    Raises:
        PickError: there is none; names what there is.
    """
    if trial is None:
        if epoch is not None:
            raise PickError(f"Expected a trial with an epoch, got epoch {epoch} alone; name one with --trial")
        point = pick(sweep.front())
        if not _is_kept(sweep, point):
            raise PickError(
                f"Expected a saved model of trial {point.label}, found none; name another point with --trial"
            )
        return point
    points = sweep.folder.points() | {point.key: point for point in sweep.front().points}
    iterates_last = sorted(points.values(), key=lambda point: not point.made_from)  # where both were kept, they count
    kept = {point.epoch: point for point in iterates_last if point.trial == trial and _is_kept(sweep, point)}
    if not kept:
        some = sorted({point.trial for point in points.values() if _is_kept(sweep, point)})
        raise PickError(
            f"Expected a trial with a saved model, got {trial!r} (--trial); choose among {', '.join(some) or 'none'}"
        )
    if epoch is None:
        return kept[max(kept)]
    if epoch not in kept:
        known = ", ".join(map(str, sorted(kept)))
        raise PickError(f"Expected an epoch of {trial} whose model was kept, got {epoch} (--epoch); kept are {known}")
    return kept[epoch]


def _is_kept(sweep: Sweep, point: Point) -> bool:
    return point.model is not None and (sweep.directory / point.model).is_file()


def _check_same_plan(plan: Plan, trial: Trial) -> None:
    """Refuse numbers about another training than the recorded one: changed data, or changed code."""
    recorded = {} if trial.plan is None else trial.plan.sensitivities
    same = recorded.keys() == plan.sensitivities.keys() and all(
        isclose(recorded[name], delta, rel_tol=1e-6) for name, delta in plan.sensitivities.items()
    )
    if not (same and trial.plan is not None and trial.plan.population == plan.population):
        raise RecordError(
            f"Expected the plan that trial {trial.id} was trained with, got another from its configuration: the data "
            f"or the program have changed since; use those of the sweep"
        )


def _input_radius(model: Network) -> float | None:
    return next((layer.radius for layer in model.layers if isinstance(layer, InputBall)), None)


def _measure_inputs(data: Dataset, options: Mapping[str, Any]) -> tuple[InputNorms, ...]:
    """Return the norms of rows as trained, and of colours before their preparation."""
    raw = data
    if "preparation" in options:
        raw = clipless.datasets.load(**{name: value for name, value in options.items() if name != "preparation"})
    return (input_norms(data, "as trained"), *colour_norms(raw))
