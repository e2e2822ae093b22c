"""A synthetic sweep that looks like a real one: 24 trials x 20 epochs, three objectives, four ways to end."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.data import SweepData, read
from sweeper.privacy.claims import Claim
from sweeper.records import Objective, Point, Trial, TrialStatus
from sweeper.results.front import build_front
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import make_rehearsals, write_rehearsals

TRIALS, EPOCHS = 24, 20
RADII = (0.1, 0.25, 0.5)
ENDS = {
    5: ("stopped", "rung 8: rank 11 of 12, cut 4"),
    11: ("failed", "accuracy is NaN at epoch 7"),
    17: ("stopped", "no later epsilon can beat the front"),
    23: ("interrupted", "Ctrl-C"),
}


def synthetic_front(**changes: Any) -> dict[str, Any]:
    """The contents of ``front.json`` of one imagined sweep; `front_text` takes the same keywords."""
    front: dict[str, Any] = json.loads(front_text(**changes))
    return front


@lru_cache
def front_text(*, exploratory: bool = False, name: str = "digits", seed: int = 0) -> str:
    """The text of that file."""
    generator = np.random.default_rng(seed)
    trials: dict[str, Any] = {}
    points: list[dict[str, Any]] = []
    for number in range(TRIALS):
        id_ = f"t{number:04d}"
        config = _config(generator)
        status, reason = ENDS.get(number, ("completed", ""))
        trials[id_] = {
            "config": config,
            "run_id": f"{number:032x}",
            "delta": 1e-4,
            "relation": "add-or-remove-one",
            "accountant": "the smaller of RDP and PLD",
            "sampling": {"kind": "poisson", "sampling_rate": 0.2, "population": 1078},
            "noise_multiplier": round(6.0 / config["privacy"]["epsilon"] ** 0.8, 4),
            "status": status,
            "reason": reason,
        }
        epochs = {"completed": EPOCHS, "stopped": 8, "failed": 6, "interrupted": 13}[status]
        points += [_point(generator, id_, config, epoch) for epoch in range(1, epochs + 1)]
    _mark_front(points)
    cost = "epsilon 13.61 at delta 0.0001, the composition of all 24 trainings of the sweep"
    front = {
        "schema_version": 1,
        "sweep": name,
        "objectives": [
            {"name": "epsilon", "direction": "minimize"},
            {"name": "accuracy", "direction": "maximize"},
            {"name": "certified@0.25", "direction": "maximize"},
        ],
        "trials": trials,
        "points": points,
        "stages": [16, 6, 2],
        "hypervolume": {
            "value": 0.23,
            "reference": {"epsilon": 100.0, "accuracy": 0.0, "certified@0.25": 0.0},
            "ideal": {"epsilon": 0.01, "accuracy": 1.0, "certified@0.25": 1.0},
            "log_epsilon": True,
        },
        "ledger": {
            question: {"epsilon": 13.61, "delta": 1e-4, "events": 24, "statement": f"Price: {cost}."}
            for question, what in (("winner", "one model"), ("front", "the front"), ("everything", "every model"))
        },
        "claim": {
            "data": "digits",
            "population": 1078,
            "unit": "row",
            "evaluation": "exploratory" if exploratory else "public",
            "radius_unit": "pixels in [0, 1]",
            "exploratory": exploratory,
            "secure_generator": True,
            "public": ["The number of training rows, N = 1078.", "The ten classes are known in advance."],
            "conditions": ["The guarantee is for the training split: rows were assigned by keyed hash."],
        },
    }
    return json.dumps(front)


def _config(generator: np.random.Generator) -> dict[str, Any]:
    architecture = str(generator.choice(["mlp", "patch-net"]))
    model = {"architecture": architecture, "width": int(generator.choice([64, 128, 256]))}
    if architecture == "patch-net":
        model["patch"] = int(generator.choice([2, 4]))
    return {
        "model": model,
        "training": {
            "method": "clipless",
            "epochs": EPOCHS,
            "batch_size": int(2 ** generator.uniform(6, 9)),
            "learning_rate": float(10 ** generator.uniform(-3, 0)),
            "loss": {"name": "tau-cce", "temperature": float(10 ** generator.uniform(-1.3, 0.7))},
            "sensitivity_fraction": float(10 ** generator.uniform(-1, 0)),
        },
        "privacy": {"epsilon": float(np.exp(generator.uniform(np.log(0.5), np.log(10)))), "delta": 1e-4},
    }


def _point(generator: np.random.Generator, id_: str, config: dict[str, Any], epoch: int) -> dict[str, Any]:
    """A saturating curve: more epsilon helps, a hot temperature buys robustness with accuracy."""
    training = config["training"]
    epsilon = config["privacy"]["epsilon"] * (epoch / EPOCHS) ** 0.55
    skill = np.exp(-0.5 * (np.log10(training["learning_rate"]) + 1.2) ** 2)
    heat = np.log10(training["loss"]["temperature"])
    ceiling = 0.955 - 0.42 * np.exp(-0.9 * epsilon * (0.5 + skill)) - 0.05 * max(heat, 0) - 0.05 * (1 - skill)
    learned = 1 - 0.8 * np.exp(-0.45 * epoch * (0.3 + skill))
    accuracy = float(np.clip(ceiling * learned + generator.normal(0, 0.006), 0.08, 0.99))
    fragility = 4.5 * (1 - 0.55 * np.tanh(heat + 0.6))
    values = {
        "epsilon": epsilon,
        "accuracy": accuracy,
        **{f"certified@{r:g}": float(accuracy * np.exp(-r * fragility)) for r in RADII},
    }
    return {
        "trial": id_,
        "epoch": epoch,
        "values": values,
        "accountants": {"rdp": 1.09 * epsilon, "pld": epsilon},
        "risk": _risk(epsilon),
        "repeats": {"accuracy": [accuracy - 0.02, accuracy + 0.01, accuracy + 0.01]},
        "test": None,
        "on_front": False,
        "model": None,
    }


def _risk(epsilon: float) -> dict[str, Any]:
    caught = [min(1.0, rate * (1.0 + epsilon)) for rate in (0.001, 0.01, 0.1)]
    return {"caught": caught, "advantage": min(1.0, 0.1 * epsilon), "basis": "profile"}


def _curves(values: dict[str, float]) -> dict[str, Any]:
    """Curves that fall and rise as they should, in bands."""
    thresholds, radii = np.linspace(0.1, 0.9, 9), np.linspace(0.0, 0.5, 6)
    certified = values["accuracy"] * np.exp(-3.0 * radii)
    false, true = (np.concatenate([[1.0], (1.0 - thresholds) ** power, [0.0]]) for power in (3.0, 0.4))
    rates = {"false_rates": false, "true_rates": true}
    for name in ("false", "true"):
        rates |= {f"{name}_low": rates[f"{name}_rates"] - 0.05, f"{name}_high": rates[f"{name}_rates"] + 0.05}
    groups = {"group_predicted": thresholds, "group_rates": thresholds**1.2, "group_rows": 20.0 + thresholds}
    groups |= {"group_low": thresholds**1.2 - 0.1, "group_high": thresholds**1.2 + 0.1}
    counts = {"thresholds": thresholds, "positives": 90.0 * thresholds, "negatives": 110.0 * thresholds}
    scores = {name: found.tolist() for name, found in {**rates, **groups, **counts}.items()}
    return {
        "confidence": 0.95,
        "noise_multiplier": 4.0,
        "rows": 359,
        "radii": radii.tolist(),
        "certified": certified.tolist(),
        "certified_low": (certified - 0.05).tolist(),
        "certified_high": (certified + 0.05).tolist(),
        "scores": scores | {"auroc": [0.8, 0.87, 0.93], "hosmer_lemeshow": 8.5, "p_value": 0.4},
    }


def _mark_front(points: list[dict[str, Any]]) -> None:
    """Brute force: the tests must not trust the code they test."""
    rows = [point["values"] for point in points]
    costs = np.array([[row["epsilon"], -row["accuracy"], -row["certified@0.25"]] for row in rows])
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    better = (costs[:, None, :] < costs[None, :, :]).any(axis=2)
    dominated = (no_worse & better).any(axis=0)
    for point, out in zip(points, dominated, strict=True):
        if not out:
            point["on_front"] = True
            point["test"] = {
                name: value if name == "epsilon" else value - 0.012 for name, value in point["values"].items()
            }
            point["model"] = f"models/{point['trial']}-{point['epoch']}.safetensors"
            point["curves"] = _curves(point["values"])


def write_folder(folder: Path, front: dict[str, Any], **sweep: Any) -> Path:
    """A sweep folder that holds this front and what was installed when it ran."""
    return write_text(folder, json.dumps(front), front["sweep"], **sweep)


def write_text(folder: Path, front: str, name: str, **sweep: Any) -> Path:
    """The same, of the text of a front."""
    folder.mkdir(parents=True)
    (folder / "front.json").write_text(front)
    versions = {"sweeper": "0.1.0", "torch": "2.13.0"}
    named = {"name": name, "status": "completed", "spec": {}, "source": "spec.yaml"}
    (folder / "sweep.json").write_text(json.dumps({"format": 1, **named, "versions": versions, **sweep}))
    return folder


@pytest.fixture
def write_sweep() -> Callable[..., Path]:
    """Write the folder of an ended sweep; the arguments after its place are those of `synthetic_front`."""

    def write(folder: Path, *, tracking: str | None = None, status: str = "completed", **front: Any) -> Path:
        return write_text(folder, front_text(**front), front.get("name", "digits"), status=status, tracking=tracking)

    return write


@pytest.fixture
def make_front() -> Callable[..., dict[str, Any]]:
    """Contents of a ``front.json``, to be changed freely."""
    return synthetic_front


@pytest.fixture
def load(tmp_path: Path) -> Callable[[dict[str, Any]], SweepData]:
    """From the contents of a ``front.json`` to the sweep."""

    def write_and_read(front: dict[str, Any]) -> SweepData:
        number = sum(1 for _ in tmp_path.iterdir())
        return read(write_folder(tmp_path / f"sweep-{number}", front))

    return write_and_read


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    data = read(write_folder(tmp_path_factory.mktemp("out") / "digits-20260101-120000", synthetic_front()))
    return replace(data, trial_rows=tuple(_rows_of_trials(data)))


def _rows_of_trials(data: SweepData) -> Iterator[Trial]:
    """Rows as two workers of one machine write them: each trial begins when the one before the last has ended."""
    trials, place = list(data.trials.items()), {"node": "head", "device": "cpu"}
    for i, (id_, trial) in enumerate(trials):
        for before, ended in trials[i - 2 : i - 1] if i >= 2 else ():
            yield Trial(id=before, config=ended.config, placed=place, status=TrialStatus(ended.status))
        yield Trial(id=id_, config=trial.config)
        yield Trial(id=id_, config=trial.config, placed=place)
    for id_, trial in trials[-2:]:
        yield Trial(id=id_, config=trial.config, placed=place, status=TrialStatus(trial.status))


@pytest.fixture(scope="session")
def rehearsed_sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    """A sweep that rehearsed seventeen configurations, of which the fifth failed, and trained the fourth."""
    generator = np.random.default_rng(3)
    configs = [_config(generator) for _ in range(17)]
    scores: list[tuple[float, ...]] = [(0.5 + 0.02 * i, 0.3 + 0.01 * i) for i in range(17)]
    scores[3], scores[4] = (0.9, 0.6), ()
    front = synthetic_front()
    kept = {**front["trials"]["t0000"], "config": configs[3]}
    front["trials"], front["stages"] = {"t0001": kept}, [1]
    front["points"] = [{**point, "trial": "t0001"} for point in front["points"] if point["trial"] == "t0000"]
    _mark_front(front["points"])
    course = {"trials": 1, "stages": [1], "rehearsals": 17, "rehearsed_on": "public"}
    folder = write_folder(tmp_path_factory.mktemp("out") / "rehearsed", front, course=course)
    write_rehearsals(SweepFolder(folder), make_rehearsals(*scores, configs=configs))
    return read(folder)


@pytest.fixture(scope="session")
def exploratory_sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    folder = tmp_path_factory.mktemp("out") / "exploratory"
    return read(write_folder(folder, synthetic_front(exploratory=True)))


def small_sweep(
    points: list[Point],
    *,
    objectives: tuple[str, ...] = ("epsilon", "accuracy"),
    trials: tuple[Trial, ...] | None = None,
) -> SweepData:
    claim = Claim(
        data="d",
        population=1000,
        unit="row",
        evaluation="public",
        radius_unit="raw units",
        exploratory=False,
        secure_generator=True,
        public=(),
        conditions=(),
    )
    ids = dict.fromkeys(point.trial for point in points)
    front = build_front(
        sweep="small",
        objectives=map(Objective.named, objectives),
        trials=(Trial(id=id_, config={}) for id_ in ids) if trials is None else trials,
        points=points,
        ledger={},
        claim=claim,
    )
    return SweepData(result=front)


@pytest.fixture(scope="session")
def small() -> Callable[..., SweepData]:
    """A sweep of a few points, its front computed."""
    return small_sweep


@pytest.fixture(scope="session")
def with_configs() -> Callable[..., SweepData]:
    """A sweep with one point per configuration; later ones are better and cost more."""

    def build(*configs: dict[str, Any]) -> SweepData:
        trials = tuple(Trial(id=f"t{i}", config=c, status=TrialStatus.COMPLETED) for i, c in enumerate(configs))
        points = [
            Point(trial=t.id, epoch=1, values={"epsilon": 1.0 + i, "accuracy": 0.5 + 0.01 * i})
            for i, t in enumerate(trials)
        ]
        return small_sweep(points, trials=trials)

    return build
