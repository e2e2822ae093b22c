"""Names and texts as MLflow takes them; MLflow itself is not imported here."""

import getpass
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from importlib import metadata
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.records import ConfigValues, Interval, SweepStatus, TrialStatus
from sweeper.rounding import round_up
from sweeper.specification.fields.nested import leaves
from sweeper.store.actions import submitter

if TYPE_CHECKING:
    from clipless.privacy.exposure import Risk
    from sweeper.privacy.pricing import Price
    from sweeper.records import Point

_SIZES = ("width", "channels", "depth")  # of a model, what its name shows first
PAGE_VARIABLE = "SWEEPER_TRACKING_PAGE"  # where people find the tracking server that runs are sent to, if elsewhere
MAX_KEY_LENGTH = 250
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 8000

_KILLED, _FINISHED = "KILLED", "FINISHED"
RUN_STATUS: Mapping[TrialStatus | SweepStatus, str] = {
    TrialStatus.RUNNING: _KILLED,  # what still runs when tracking ends has been killed
    TrialStatus.COMPLETED: _FINISHED,
    TrialStatus.STOPPED: _FINISHED,
    TrialStatus.FAILED: "FAILED",
    TrialStatus.INTERRUPTED: _KILLED,
    SweepStatus.COMPLETED: _FINISHED,
    SweepStatus.STOPPED: _FINISHED,
    SweepStatus.FAILED: "FAILED",
    SweepStatus.INTERRUPTED: _KILLED,
}

NAME_TAG = "mlflow.runName"
NOTE_TAG = "mlflow.note.content"  # a run's description, in Markdown
USER_TAG = "mlflow.user"
BEST_TAG = "sweeper.best"  # of a sweep that has ended, like its price
PRICE_TAG = "sweeper.price"
PLANNED_TAG = "sweeper.planned_epsilon"  # of a trial: trials of one configuration differ by it in a budget in stages
NOISE_TAG = "sweeper.noise_multiplier"
ARTIFACT_LINK = "artifact-of-this-run:"  # in a description, in front of the name of an artifact: links there

PACKAGES = ("torch", "numpy", "optuna", "ray", "mlflow", "moocore", "autodp", "dp-accounting")


def metric_names(
    values: Mapping[str, float],
    accountants: Mapping[str, float] | None = None,
    sensitivities: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return a point's numbers under their MLflow names.

    >>> metric_names({"epsilon": 1.0, "accuracy": 0.9, "certified@36/255": 0.5}, {"pld": 1.0})
    {'epsilon': 1.0, 'val/accuracy': 0.9, 'val/certified/36_255': 0.5, 'epsilon/pld': 1.0}
    """
    named = {}
    for name, value in values.items():
        kind, _, radius = name.partition("@")
        prefix = "" if name == "epsilon" else "val/"
        named[f"{prefix}{kind}" + (f"/{radius.replace('/', '_')}" if radius else "")] = value
    named |= {f"epsilon/{name}": value for name, value in (accountants or {}).items()}
    return named | {f"sensitivity/{name}": value for name, value in (sensitivities or {}).items()}


def best_name(objective: str) -> str:
    """Return the MLflow name of the best value of a trial or a sweep in an objective, the same for both.

    >>> best_name("accuracy"), best_name("certified@36/255")
    ('best/accuracy', 'best/certified/36_255')
    """
    return f"best/{next(iter(metric_names({objective: 0.0}))).removeprefix('val/')}"


def best_metrics(point: "Point", objective: str) -> dict[str, float]:
    """Return the best value in an objective with its interval, and own epsilon and epoch of its point, by MLflow names.

    >>> from sweeper.records import Point
    >>> best_metrics(Point(trial="t0001", epoch=3, values={"epsilon": 1.0, "accuracy": 0.9}), "accuracy")
    {'best/accuracy': 0.9, 'best/accuracy/epsilon': 1.0, 'best/accuracy/epoch': 3.0}
    """
    name, epsilon = best_name(objective), point.values.get("epsilon")
    at, ends = {} if epsilon is None else {f"{name}/epsilon": epsilon}, point.interval(objective)
    at |= {} if ends is None else {f"{name}/low": ends[0], f"{name}/high": ends[1]}
    return {name: point.values[objective], **at, f"{name}/epoch": float(point.epoch)}


def best_test_metrics(point: "Point", objective: str) -> dict[str, float]:
    """Return the test score of the point that is best in an objective, by MLflow names; nothing where it has none.

    >>> from sweeper.records import Point
    >>> best_test_metrics(Point(trial="t0001", epoch=3, values={}, test={"accuracy": 0.88}), "accuracy")
    {'best/accuracy/test': 0.88}
    """
    score, ends = (point.test or {}).get(objective), point.test_interval(objective)
    if score is None:
        return {}
    name = f"{best_name(objective)}/test"
    return {name: score} | ({} if ends is None else {f"{name}/low": ends[0], f"{name}/high": ends[1]})


def name_hypervolume(value: float, interval: Interval | None) -> dict[str, float]:
    """Return a hypervolume under its MLflow name, with the ends of its interval where scores are noisy.

    >>> name_hypervolume(0.5, (0.4, 0.6))
    {'hypervolume': 0.5, 'low/hypervolume': 0.4, 'high/hypervolume': 0.6}
    """
    ends = zip(("low", "high"), interval or (), strict=False)
    return {"hypervolume": value} | {f"{end}/hypervolume": volume for end, volume in ends}


def noise_metrics(point: "Point") -> dict[str, float]:
    """Return the ends of the intervals of noisy scores, and these as they were released, beside the estimates."""
    if point.noisy is None:
        return {}
    ends = point.noisy.intervals
    parts = {
        "low": {name: low for name, (low, _) in ends.items()},
        "high": {name: high for name, (_, high) in ends.items()},
        "released": point.noisy.released,
    }
    return {f"{part}/{name}": value for part, values in parts.items() for name, value in metric_names(values).items()}


def model_metrics(point: "Point") -> dict[str, float]:
    """Return what the model of a point has reached on validation and test rows, under the names of its trial's metrics.

    >>> from sweeper.records import Point
    >>> model_metrics(Point(trial="t0001", epoch=3, values={"accuracy": 0.9}, made_from="slow-midpoint"))
    {'slow-midpoint/val/accuracy': 0.9}
    """
    own = {name: value for name, value in point.values.items() if name != "epsilon"}
    named = metric_names(own) | noise_metrics(point) | name_test_scores(point)
    return {f"{point.made_from}/{name}" if point.made_from else name: value for name, value in named.items()}


def name_test_scores(point: "Point") -> dict[str, float]:
    """Return the test scores of a point under their MLflow names, with the ends of intervals of noisy ones.

    >>> from sweeper.records import Point
    >>> name_test_scores(Point(trial="t0001", epoch=3, values={}, test={"epsilon": 1.0, "accuracy": 0.88}))
    {'test/accuracy': 0.88}
    """
    scores = {name: value for name, value in (point.test or {}).items() if name != "epsilon"}
    found = dict(_as_test(scores))
    for name in scores:
        low, high = point.test_interval(name) or (None, None)
        if low is not None and high is not None:
            found |= {f"low/{key}": value for key, value in _as_test({name: low})}
            found |= {f"high/{key}": value for key, value in _as_test({name: high})}
    return found


def _as_test(scores: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name, value in metric_names(scores).items():
        yield name.replace("val/", "test/", 1), value


def user_tag(folder: Path) -> dict[str, str]:
    """Return the tag of whose sweep it is, as MLflow has it; none where nobody knows.

    Of a sweep that was submitted to a service it is the owner of the token, otherwise who runs this process.
    """
    asked = submitter(folder)
    if asked:
        return {USER_TAG: asked}
    try:
        return {USER_TAG: getpass.getuser()}
    except (KeyError, OSError, ImportError):  # no such user, and no variable that names one
        return {}


def rehearsal_metrics(values: Mapping[str, float], made_from: str = "") -> dict[str, float]:
    """Return what a rehearsed configuration has shown at an epoch, under names that no trial has.

    >>> rehearsal_metrics({"accuracy": 0.9, "certified@0.25": 0.5})
    {'rehearsal/accuracy': 0.9, 'rehearsal/certified/0.25': 0.5}
    >>> rehearsal_metrics({"accuracy": 0.9}, "slow-midpoint")
    {'rehearsal/slow-midpoint/accuracy': 0.9}
    """
    prefix = f"rehearsal/{made_from}/" if made_from else "rehearsal/"
    return {name.replace("val/", prefix, 1): value for name, value in metric_names(values).items() if name != "epsilon"}


def rehearsal_name(configuration: str, config: ConfigValues) -> str:
    """Return the name of the run of a rehearsed configuration, which begins as no trial's does.

    >>> rehearsal_name("c0005", {"model": {"architecture": "mlp", "width": 64}})
    'rehearsal c0005 mlp-64'
    """
    return f"rehearsal {trial_name(configuration, config)}"


def trial_name(trial: str, config: ConfigValues, epsilon: float | None = None) -> str:
    """Return the name of a trial's run: its id, what it trains, and the epsilon that it plans, rounded up.

    >>> trial_name("t0021", {"model": {"architecture": "mlp", "width": 64}}, 2.8412)
    't0021 mlp-64 planned eps 2.842'
    """
    parts = [trial, _name_model(config)]
    if epsilon is not None:
        parts.append(f"planned eps {round_up(epsilon)}" if isfinite(epsilon) else "non-private")
    return " ".join(filter(None, parts))


def result_name(trial: str, config: ConfigValues, result: str, stage: str = "") -> str:
    """Return the name of the run of a trial when its sweep has ended: what it reached comes first, for lists cut names.

    >>> result_name("t0021", {"model": {"architecture": "mlp", "width": 64}}, "accuracy 0.838", "stage 1 of 2")
    't0021 accuracy 0.838, stage 1 of 2, mlp-64'
    """
    return ", ".join(filter(None, [f"{trial} {result}", stage, _name_model(config)]))


def _name_model(config: ConfigValues) -> str:
    """Return what a configuration trains, with its size, empty where it does not say."""
    model = config.get("model", {})
    size = next((model[key] for key in _SIZES if isinstance(model.get(key), int)), None)
    return str(model["architecture"]) + (f"-{size}" if size else "") if "architecture" in model else ""


def price_metrics(prices: Mapping[str, "Price"]) -> dict[str, float]:
    """Return the price of a sweep under its MLflow name, with what it means to a person; none where it is not known."""
    price = prices.get("winner")
    if price is None or not price.released:
        return {}
    meant = {} if price.exposure is None else price.exposure.to_values()
    finite = {f"price/{_metric(key)}": value for key, value in meant.items() if isfinite(value)}
    return {"price": price.epsilon} | finite


def risk_metrics(risk: "Risk") -> dict[str, float]:
    """Return what an attacker finds by a point, under its MLflow names.

    >>> from clipless.privacy.exposure import Basis, Risk
    >>> risk_metrics(Risk(caught=(0.009, 0.052, 0.277), advantage=0.266, basis=Basis.PROFILE))
    {'caught/0.001': 0.009, 'caught/0.01': 0.052, 'caught/0.1': 0.277, 'advantage': 0.266}
    """
    return {_metric(name): value for name, value in risk.to_values().items()}


def _metric(name: str) -> str:
    return name.replace("@", "/")


def mlflow_params(params: Mapping[str, object]) -> dict[str, str]:
    """Return nested parameters as MLflow takes them: dotted names, short texts.

    >>> mlflow_params({"loss": {"name": "tau-cce", "temperature": 0.5}, "radii": [1, 2]})
    {'loss.name': 'tau-cce', 'loss.temperature': '0.5', 'radii': '[1, 2]'}
    """
    flat: dict[str, str] = {}
    for name, value in leaves(params):
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        flat[clean(name)] = text[:MAX_PARAM_LENGTH]
    return flat


@lru_cache(maxsize=4096)
def clean(name: str) -> str:
    """Return a name that MLflow accepts.

    >>> clean("val/certified@36//255")
    'val/certified_36/255'
    """
    parts = [part for part in re.sub(r"[^\w\-. :/]", "_", name).split("/") if part.strip(".")]
    return "/".join(parts)[:MAX_KEY_LENGTH].rstrip("/") or "_"


def version_tags() -> dict[str, str]:
    """Return the versions of this code and of the packages that results depend on, as tags."""
    found = {f"version.{name}": _version(name) for name in PACKAGES}
    tags = {"sweeper.version": metadata.version("sweeper")}
    return tags | {tag: version for tag, version in found.items() if version is not None}


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def escape_markdown(text: str) -> str:
    """Return a text that people wrote, as Markdown shows it."""
    return "".join(f"\\{character}" if character in "*_[]<>`|\\" else character for character in text)
