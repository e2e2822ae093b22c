"""Builders that the tests of several folders share, each named by what it makes."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clipless.audits.finding import AuditKind, Finding
from clipless.curves import ecdf
from clipless.datasets import Dataset, Evaluation, Metadata, input_format
from clipless.plans.plan import Plan
from clipless.testing import SeededSource
from sweeper.adapters import dump
from sweeper.driver.recording.recorder import Recorder
from sweeper.errors import SpecError
from sweeper.papers.registry_record import registry_schema
from sweeper.planning.configurations import find_plannable, plan_configuration
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.make import make_score_noise
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.card.content import card_schema
from sweeper.records import RehearsalSource, TrialStatus
from sweeper.search.optuna_search import Search
from sweeper.specification import plugins
from sweeper.specification.search import Sampler
from sweeper.specification.spec import Spec
from sweeper.store.evidence import Evidence
from sweeper.store.jsonl import JsonlFile
from sweeper.store.manifest import Course
from sweeper.store.rehearsal_records import RehearsalRecord
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.stream import PlanRow
from sweeper.trials.trial import TrialRun


@lru_cache(maxsize=1)
def card_validator() -> jsonschema.Draft202012Validator:
    """What holds a card against its schema, which `tests/sweeper/papers/test_exports.py` checks itself."""
    return jsonschema.Draft202012Validator(card_schema())


@lru_cache(maxsize=1)
def registry_validator() -> jsonschema.Draft202012Validator:
    """What holds a record of the registry of deployments against its schema."""
    return jsonschema.Draft202012Validator(registry_schema())


def small_content(name: str = "small", *, privacy: Mapping[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """The content of the spec of a small network on digits; sections add their keys, and ``privacy`` is replaced."""
    content: dict[str, Any] = {
        "name": name,
        "data": {"name": "digits"},
        "model": {"architecture": "mlp", "width": 16},
        "training": {"epochs": 2, "batch_size": 256, "learning_rate": 0.05},
        "privacy": dict(privacy or {"epsilon": 3.0, "delta": 1e-4}),
    }
    return content | {name: content.get(name, {}) | keys for name, keys in sections.items()}


class Clock:
    """Stands still unless a test moves it: a busy machine makes nothing older."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Untouchable:
    """Stands for a split that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        pytest.fail(f"the split's {name} was looked at")


class FakeTracker:
    """Remembers what it is told; knows runs once ``runs`` says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.runs: dict[str, str] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.calls.append((name, *args))

    def run_id(self, trial: str) -> str | None:
        return self.runs.get(trial)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of every call of this name."""
        return [call[1:] for call in self.calls if call[0] == name]


class Proposals:
    """Gives every trial the same proposal."""

    def __init__(self, proposal: Mapping[str, Any] | None = None) -> None:
        self._proposal = dict(proposal or {})
        self.asked = 0
        self.open: dict[str, dict[str, Any]] = {}

    def ask(self) -> str:
        self.asked += 1
        self.open[f"t{self.asked}"] = self._proposal
        return f"t{self.asked}"


def set_key(content: dict[str, Any], path: str, value: Any) -> None:
    """Set a key of a spec by its dotted name; ``...`` removes it."""
    *sections, key = path.split(".")
    for section in sections:
        content = content.setdefault(section, {})
    if value is ...:
        del content[key]
    else:
        content[key] = value


def spec_error(content: Mapping[str, Any], source: str = "mnist.yaml", **changes: Any) -> str:
    """Return the sentence with which a spec is refused; ``changes`` are keys as in ``set_key``, with ``__`` for dots."""
    changed = copy.deepcopy(dict(content))
    for path, value in changes.items():
        set_key(changed, path.replace("__", "."), value)
    with pytest.raises(SpecError) as caught:
        Spec.from_mapping(changed, source)
    return str(caught.value)


def make_spec(content: Mapping[str, Any], **changes: Mapping[str, Any]) -> Spec:
    """Make a spec whose sections have other keys."""
    return Spec.from_mapping({**content, **{name: {**content.get(name, {}), **keys} for name, keys in changes.items()}})


def make_course(spec: Spec) -> Course:
    """Make what a driver would write of how the sweep of a spec goes."""
    stages = tuple(stage.trials for stage in spec.stages)
    steered = bool(spec.search.learns or stages or spec.rehearsals)
    return Course(trials=spec.trials, stages=stages, rehearsals=spec.rehearsals, can_be_steered=steered)


def plan_first_configuration(plan: SweepPlan, data: Dataset) -> Plan:
    """Return the plan of the first of the configurations that can be planned."""
    slot, shared = plan.spending.first_slot, plan.shared
    return find_plannable(shared, plan.trials, lambda proposal: plan_configuration(shared, data, proposal, slot)[1])


def make_run(data: Dataset, spec: Spec, sweep: SweepFolder | None = None, **more: Any) -> TrialRun:
    """Make the trial t0001 of a spec without open hyperparameters."""
    given = {
        "trial": "t0001",
        "config": spec.space.resolve({}),
        "data": data,
        "objectives": spec.objectives,
        "metrics": spec.search.metrics,
        "seed": 0,
        "folder": None if sweep is None else sweep.path,
        "source": SeededSource(0),
        "repeats": spec.search.repeats,
        "noise": make_score_noise(spec, data),
        "smoothing": spec.search.smoothed,
    }
    return TrialRun(**given | more)


def plan_sweep(spec: Spec, data: Dataset, data_dir: Path | None = None, **kept: Any) -> SweepPlan:
    """Plan the sweep of a spec as its user wrote it."""
    encoding = input_format(**spec.data_options(data_dir))
    return LoadedSpec(spec=spec, data=data, encoding=encoding).plan(**kept)


def make_search(spec: Spec, folder: SweepFolder | None = None) -> Search:
    """Make a search that proposes nothing."""
    journal = None if folder is None else folder.proposals
    return Search(lambda _trial: {}, spec.objectives, sampler=Sampler.RANDOM, seed=0, journal=journal)


def make_recorder(spec: Spec, data: Dataset, folder: SweepFolder, tracker: FakeTracker | None = None) -> Recorder:
    """Make the recorder of a sweep on this data."""
    return Recorder(plan_sweep(spec, data), folder, tracker or FakeTracker(), make_search(spec, folder))


def begin(recorder: Recorder, plan_row: PlanRow, trial: str = "t0001", config: Mapping[str, Any] | None = None) -> None:
    """Let a trial begin, plan and draw its first noise."""
    recorder.on_start(trial, {**(config or {}), "trial": trial, "proposal": {}})
    assert recorder.on_plan(trial, plan_row) is None
    recorder.on_draw(trial)


def complete(recorder: Recorder, run: TrialRun, config: Mapping[str, Any] | None = None) -> None:
    """Let a recorder take a whole trial."""
    begin(recorder, run.plan_row(), config=config)
    epoch = 0
    for row in run.epoch_rows():
        epoch = row.epoch
        recorder.on_epoch("t0001", row)
    recorder.on_end("t0001", TrialStatus.COMPLETED, "", epoch)


def make_finding(kind: AuditKind = AuditKind.STEP, **changes: Any) -> Finding:
    """Make what an audit found of trial t0001: a contradiction, unless ``changes`` say otherwise."""
    numbers = {"epsilon": 1.0, "delta": 1e-4, "attained": 4.0, "confidence": 1.0, "p_value": 0.0}
    return Finding(kind=kind, **{"subject": "trial t0001", "contradicted": True} | numbers | changes)


def make_evidence(trial: str = "t0001", **changes: Any) -> Evidence:
    """Make the evidence of a finding on a trial."""
    finding = make_finding(**{"subject": f"trial {trial}"} | changes)
    return Evidence(trial=trial, finding=finding, found="now", program="1")


def make_metadata(**changes: Any) -> Metadata:
    """Make the public facts of a data set of images."""
    facts = {"name": "digits", "input_shape": (1, 8, 8), "classes": ("0", "1"), "evaluation": Evaluation.PUBLIC}
    facts |= {"unit": "row", "input_norm": 8.0, "input_gain": 1.0, "radius_unit": "pixels in [0, 1]"}
    return Metadata(**{"public_facts": (), "conditions": ()} | facts | changes)


def make_rehearsals(
    *scores: tuple[float, ...],
    names: Sequence[str] = ("accuracy", "certified@0.25"),
    configs: Sequence[Mapping[str, Any]] = (),
) -> list[RehearsalRecord]:
    """Make the rows of configurations that were rehearsed: of each its scores at epoch 2; none of a failed one.

    Their learning rates are 0.01, 0.02 and so on, unless ``configs`` has others.
    """
    records = []
    for i, values in enumerate(scores, start=1):
        rate = 0.01 * i
        for half, change in ((1, 0.02), (2, -0.02)):
            named = {name: value + change for name, value in zip(names, values, strict=True)} if values else {}
            early = {name: value / 2 for name, value in named.items()}
            record = RehearsalRecord(
                rehearsal=f"r{2 * i - 2 + half:04d}",
                configuration=f"c{i:04d}",
                trainings=2,
                source=RehearsalSource.PUBLIC,
                proposal={"training.learning_rate": rate},
                config=configs[i - 1] if configs else {"model": {"width": 64}, "training": {"learning_rate": rate}},
                reason="" if values else "accuracy is not a number in epoch 1",
                points={"1": early, "2": named, "2 slow-midpoint": early} if values else {},
            )
            records.append(record)
    return records


def write_rehearsals(folder: SweepFolder, records: Sequence[RehearsalRecord]) -> None:
    """Write rows of rehearsals into the folder of a sweep."""
    JsonlFile(folder.rehearsals).append(*map(dump, records))


def install_plugins(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str, str]) -> None:
    """Let these entry points, name, value and group, be all that is installed."""
    known = EntryPoints(EntryPoint(*entry) for entry in entries)
    monkeypatch.setattr(plugins.importlib_metadata, "entry_points", lambda **wanted: known.select(**wanted))


def draw_few_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bands of released curves be simulated with few draws."""
    real = ecdf.largest_noise

    def few(*args: Any, draws: int, **more: Any) -> Any:
        return real(*args, draws=min(draws, 20), **more)

    for module in ("ecdf", "bands"):
        monkeypatch.setattr(f"clipless.curves.{module}.largest_noise", few)
