"""The registry: a picked model as an MLflow model that predicts what ``sweeper predict`` predicts.

The model is logged as code and files: three lines that call `served_model`, and what ``sweeper pick`` writes. Nothing
is pickled.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.datasets import Drop, InputFormat, Ranges
from clipless.datasets.raw_rows import Pixels
from sweeper.errors import SweeperError, one_line
from sweeper.results.display import lines_in_html
from sweeper.results.highlights import score_by_split
from sweeper.results.models.predict import load_predictor, temperature_of
from sweeper.results.sweep import Picked
from sweeper.rounding import exactly, round_up
from sweeper.tracking.client import destination_of, find_runs
from sweeper.tracking.names import NOTE_TAG, clean, mlflow_params, model_metrics, version_tags
from sweeper.tracking.store import ID_TAG, SWEEP_TAG, Destination, prepare_mlflow

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature
    from mlflow.pyfunc.model import PythonModel

ARTIFACT = "picked"
SUPERSEDED_TAG = "sweeper.superseded_by"
SUPERSEDED = "Superseded: the sweep went on and logged another model. The price of this one may have grown since."
DIGITS = 6  # of an epsilon in a tag, rounded up
CODE_NAME = "served_model.py"
CODE = """\
from mlflow.models import set_model

from sweeper.results.models.registry import make_served_model

set_model(make_served_model())
"""


@dataclass(frozen=True, slots=True, repr=False)
class Registered:
    """A version in the registry, loaded by its ``uri``, ``models:/<name>/<version>``."""

    name: str
    version: str
    uri: str
    store: str
    takes: str  # what predict takes, in a sentence

    def __repr__(self) -> str:
        """Return what a terminal shows: the version, where it is, and how to load it."""
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise."""
        return lines_in_html(self._lines())

    def _lines(self) -> list[str]:
        return [
            f"{self.name}, version {self.version}, in {self.store}",
            f'mlflow.set_registry_uri("{self.store}"); mlflow.pyfunc.load_model("{self.uri}")',
            self.takes,
        ]


def register(picked: Picked, name: str, *, tracking: str | None = None, data_dir: Path | None = None) -> Registered:
    """Register a picked model, with its card and how rows are encoded.

    A known name gets a new version. ``tracking`` is another store than the sweep's; ``data_dir`` is needed if the
    sweep's folder does not say how rows are encoded.

    Raises:
        SweeperError: nothing to encode rows by, or the store does not take the model.
    """
    manifest = picked.sweep.manifest()
    wanted = destination_of(picked.sweep.directory, replace(manifest, tracking=tracking or manifest.tracking))
    takes = input_in_words(picked.sweep.input_format(data_dir))
    with _prepare(picked, data_dir, f"Cannot register {name} in {wanted.uri}") as parts:
        return _log(picked, name, wanted, parts, takes)


def log_model(picked: Picked, wanted: Destination, run: str, *, data_dir: Path | None = None) -> str:
    """Log a picked model as a model of MLflow's, of the run of its trial, and return its id.

    It is not registered: `register` makes a version of it. Nothing of MLflow's own state in this process is changed.

    Raises:
        SweeperError: nothing to encode rows by, or the store does not take the model.
    """
    takes = input_in_words(picked.sweep.input_format(data_dir))
    with _prepare(picked, data_dir, f"Cannot log the model in {wanted.uri}") as parts:
        return _log_once(picked, wanted, run, parts, takes)


@contextlib.contextmanager
def _prepare(picked: Picked, data_dir: Path | None, trouble: str) -> Iterator[dict[str, Any]]:
    """Give what MLflow saves a model from: what ``pick`` writes, and the code that loads it.

    An error of MLflow's meanwhile becomes a `SweeperError` that begins with ``trouble``.
    """
    form = picked.sweep.input_format(data_dir)
    with tempfile.TemporaryDirectory() as folder:
        files, code = Path(folder) / ARTIFACT, Path(folder) / CODE_NAME
        code.write_text(CODE, encoding="utf-8")
        lacking = picked.write(files, data_dir)
        if lacking is not None:
            raise SweeperError(lacking)
        try:
            prepare_mlflow()
            yield {
                "python_model": str(code),
                "artifacts": {ARTIFACT: str(files)},
                "signature": _signature(form, probabilities=temperature_of(picked.trial.config) is not None),
                "pip_requirements": _requirements(form),
            }
        except SweeperError:
            raise
        except Exception as error:
            raise SweeperError(f"{trouble}: {one_line(error)}") from error


def _log_once(picked: Picked, wanted: Destination, run: str, parts: Mapping[str, object], takes: str) -> str:
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModelOutput, Metric

    client = MlflowClient(tracking_uri=wanted.uri)
    experiment = client.get_run(run).info.experiment_id
    earlier = _logged_before(client, experiment, wanted)
    made = client.create_logged_model(
        experiment,
        name=f"{wanted.sweep}-{picked.point.name}".replace(".", "-"),  # MLflow takes no points here
        source_run_id=run,
        tags={**tags_of(picked), **wanted.tags, NOTE_TAG: describe(picked, takes)},
        params=mlflow_params(picked.trial.config),
        model_type="clipless",
    )
    at, step, scores = made.creation_timestamp, picked.point.epoch, model_metrics(picked.point)
    client.log_batch(run, [Metric(clean(name), x, at, step, model_id=made.model_id) for name, x in scores.items()])
    with tempfile.TemporaryDirectory() as folder, _without_advice():
        saved = Path(folder) / "model"
        mlflow.pyfunc.save_model(saved, **parts)
        client.log_model_artifacts(made.model_id, str(saved))
    client.finalize_logged_model(made.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(made.model_id, step=picked.point.epoch)])
    for model in earlier:
        if SUPERSEDED_TAG not in model.tags:
            said = f"{SUPERSEDED}\n\n{model.tags.get(NOTE_TAG, '')}"
            client.set_logged_model_tags(model.model_id, {SUPERSEDED_TAG: made.model_id, NOTE_TAG: said})
    return str(made.model_id)


def _logged_before(client: "MlflowClient", experiment: str, wanted: Destination) -> list["LoggedModel"]:
    """Return the models that the sweep has logged already: it went on after its end."""
    name = wanted.tags[SWEEP_TAG]
    quote = '"' if "'" in name else "'"
    models = client.search_logged_models([experiment], filter_string=f"tags.`{SWEEP_TAG}` = {quote}{name}{quote}")
    return [model for model in models if model.tags.get(ID_TAG) == wanted.id]


def tags_of(picked: Picked) -> dict[str, str]:
    """Return what a registry shows of a picked model: what it guarantees, and where it came from."""
    card = picked.card.content
    guarantee = card.guarantee
    if guarantee.selected is None:
        own = {
            "sweeper.own_epsilon": round_up(guarantee.fixed_in_advance.epsilon, DIGITS),
            "sweeper.own_epsilon_of_any_epoch": round_up(guarantee.chosen_afterwards.epsilon, DIGITS),
        }
    else:  # the price of one training holds for no winner
        own = {}
    return {
        "sweeper.sweep": picked.sweep.directory.name,
        "sweeper.trial": picked.point.trial,
        "sweeper.epoch": str(picked.point.epoch),
        **({"sweeper.made_from": picked.point.made_from} if picked.point.made_from else {}),
        **own,
        "sweeper.price": round_up(card.ledger["winner"].epsilon, DIGITS),
        "sweeper.price_proven": str(not card.ledger["winner"].unproven).lower(),
        "sweeper.delta": exactly(guarantee.delta),
        "sweeper.relation": guarantee.relation.value,
        "sweeper.exploratory": str(card.exploratory).lower(),
    }


def make_served_model() -> "PythonModel":
    """Return what MLflow loads: it predicts from data frames, or from arrays of images, as ``sweeper predict`` does."""
    import numpy as np
    import pandas as pd

    with _without_advice():
        from mlflow.pyfunc.model import PythonModel, PythonModelContext

    class ServedModel(PythonModel):
        def load_context(self, context: PythonModelContext) -> None:
            self._predictor = load_predictor(Path(context.artifacts[ARTIFACT]))

        # Of other type hints MLflow would make a second schema, beside the signature.
        def predict(
            self, context: PythonModelContext, model_input: pd.DataFrame, params: object = None
        ) -> pd.DataFrame:
            del context, params
            form = self._predictor.form
            if isinstance(model_input, np.ndarray):
                return self._predictor(form.of_array(model_input))
            return self._predictor(form.of_columns({str(name): cells for name, cells in model_input.items()}))

    return ServedModel()


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Keep MLflow from warning of its own type hints, and from asking for an example, which would be a row of data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*([Ii]nput example|Any type hint)")
        yield


def describe(picked: Picked, takes: str) -> str:
    """Return what a registry says of a version: its price, its scores, where its card is, and what it predicts from.

    Guarantees:
        The epsilon is the price of the sweep, which holds however the model was chosen, or is marked as not proven;
        never that of one training.
    """
    card, point = picked.card.content, picked.point
    winner = card.ledger["winner"].to_price()
    price = f"Epsilon {round_up(winner.epsilon)} at delta {exactly(card.guarantee.delta)}"
    named = f"{price} (price of the sweep{', not proven' if winner.unproven else ''})"
    parts = ["Exploratory: no guarantee", price] if card.exploratory else [named]
    if card.guarantee.selected is None:
        own = round_up(card.guarantee.fixed_in_advance.epsilon)
        parts.append(f"own epsilon {own}, if configuration and epoch had been fixed in advance")
    front = picked.sweep.front()
    judged = [one.name for one in front.objectives if one.name in point.values and one.name != "epsilon"]
    parts += [score_by_split(point, name, front.claim) for name in judged[:1]]
    return "; ".join([*parts, f"card.md in the artifacts, folder {ARTIFACT}"]) + f".\n\n{takes}"


def input_in_words(form: InputFormat) -> str:
    """Return what a registered model's ``predict`` takes: type, shape and range of values, or columns.

    >>> input_in_words(InputFormat(name="d", classes=("a", "b"), raw=Pixels((8, 8), 16)))
    'predict takes an array of uint8, shape (rows, 8, 8), levels from 0 to 16'
    """
    match form.raw:
        case Ranges():
            used = [name for name, column in form.raw.columns.items() if not isinstance(column, Drop)]
            return f"predict takes a data frame with the columns {', '.join(used)}"
        case Pixels():
            shape = ", ".join(map(str, form.raw.shape))
            return f"predict takes an array of uint8, shape (rows, {shape}), levels from 0 to {form.raw.largest}"
        case _:
            shape = ", ".join(map(str, form.raw.shape))
            return f"predict takes an array of float32, shape (rows, {shape}), rows of norm at most {form.raw.norm:g}"


def _log(picked: Picked, name: str, wanted: Destination, parts: Mapping[str, object], takes: str) -> Registered:
    import mlflow
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=wanted.uri)
    run, tags = _run(client, picked, wanted), tags_of(picked)
    with _store(wanted.uri), _as_it_was(client, run), mlflow.start_run(run_id=run), _without_advice():
        logged = mlflow.pyfunc.log_model(name=name, registered_model_name=name, tags=tags, **parts)
    version = str(logged.registered_model_version)
    for key, value in tags.items():
        client.set_model_version_tag(name, version, key, value)
    client.update_model_version(name, version, description=describe(picked, takes))
    return Registered(name, version, f"models:/{name}/{version}", wanted.uri, takes)


@contextlib.contextmanager
def _store(uri: str) -> Iterator[None]:
    """Let MLflow's functions without a client mean this store; a registry elsewhere is the user's to name.

    MLflow writes what it is set to into the environment, where later sweeps would take it for the user's store: where
    none was set, none is afterwards.
    """
    import mlflow

    is_set: Any = mlflow.tracking.is_tracking_uri_set  # has no types
    before: Any = mlflow.get_tracking_uri() if is_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)


@contextlib.contextmanager
def _as_it_was(client: "MlflowClient", run: str) -> Iterator[None]:
    """Leave how and when a run ended as it was: logging to it starts it again."""
    before = client.get_run(run).info
    try:
        yield
    finally:
        if before.end_time is None:
            client.update_run(run, status=before.status)
        else:
            client.set_terminated(run, before.status, before.end_time)


def _run(client: "MlflowClient", picked: Picked, wanted: Destination) -> str:
    runs = find_runs(client, wanted)
    if picked.point.trial in runs:
        return runs[picked.point.trial]
    experiment = client.get_experiment_by_name(wanted.experiment)
    made = experiment.experiment_id if experiment else client.create_experiment(wanted.experiment, wanted.artifacts)
    run = client.create_run(made, tags=tags_of(picked), run_name=f"{wanted.sweep} {picked.point.trial}")
    return str(run.info.run_id)


def _requirements(form: InputFormat) -> list[str]:
    known: Mapping[str, str] = version_tags()
    package = "sweeper" if form.features is None else "sweeper[encoders]"
    return [f"{package}=={known['sweeper.version']}", f"torch=={known['version.torch'].partition('+')[0]}"]


def _signature(form: InputFormat, *, probabilities: bool = False) -> "ModelSignature":
    """Return what the model takes and gives.

    Cells may be of any type: a whole number is as good as a float, MLflow would refuse it, and every cell is checked
    when it is encoded.
    """
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    inputs: list[Any]
    if isinstance(form.raw, Ranges):
        used = [name for name, column in form.raw.columns.items() if not isinstance(column, Drop)]
        inputs = [ColSpec(AnyType(), name) for name in used]  # type: ignore[no-untyped-call]
    else:
        kind = np.dtype("uint8" if isinstance(form.raw, Pixels) else "float32")
        inputs = [TensorSpec(kind, (-1, *form.raw.shape))]
    outputs: list[Any] = [
        ColSpec(DataType.string, "class"),
        *(ColSpec(DataType.double, f"score {name}") for name in form.classes),
        *(ColSpec(DataType.double, f"probability {name}") for name in form.classes if probabilities),
        ColSpec(DataType.double, "certified_radius"),
        ColSpec(DataType.string, "radius_unit"),
    ]
    return ModelSignature(Schema(inputs), Schema(outputs))
