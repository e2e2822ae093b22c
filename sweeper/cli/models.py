"""The commands around a finished sweep: predictions, registry, notes, deletion. Each is one function call."""

from pathlib import Path
from typing import Annotated

import typer

from sweeper.errors import PickError, RecordError

MEBIBYTE = 2**20

app = typer.Typer()

SweepFolderArgument = Annotated[Path, typer.Argument(help="The folder of a sweep.", show_default=False)]
TrialArgument = Annotated[str, typer.Argument(help="A trial, such as t0007.", show_default=False)]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local copies of data sets.")]
MaxEpsilon = Annotated[float | None, typer.Option(help="Largest epsilon to accept.")]
Minimum = Annotated[
    list[str] | None,
    typer.Option("--min", help='Smallest value to accept, "certified@36/255=0.3"; repeatable.'),
]


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="What sweeper pick wrote, or a sweep.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A table, or images as npz, png or jpg.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="FILE.csv or FILE.parquet; printed by default.")
    ] = None,
    max_epsilon: MaxEpsilon = None,
    minimum: Minimum = None,
    data_dir: DataDir = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Encode unknown categories as zeros, as training did.")
    ] = False,
) -> None:
    """Predict new rows: class, a score per class, and a certified radius."""
    from sweeper.results.predict import load_predictor, write_predictions

    predictor = load_predictor(model, max_epsilon=max_epsilon, minimum=read_minimum(minimum), data_dir=data_dir)
    frame = predictor(predictor.form.read(data, allow_unknown=allow_unknown))
    if predictor.exploratory:
        typer.echo("Exploratory: no guarantee. See the model's card.", err=True)
    if output is None:
        typer.echo(frame.to_csv(index=False), nl=False)
    else:
        write_predictions(frame, output)
        typer.echo(f"{len(frame)} rows: {output}")


@app.command()
def register(
    sweep: SweepFolderArgument,
    name: Annotated[str, typer.Option(help="Name of the registered model.", show_default=False)],
    max_epsilon: MaxEpsilon = None,
    minimum: Minimum = None,
    tracking: Annotated[str | None, typer.Option(help="Another MLflow tracking URI than the sweep's.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Register a picked model with MLflow."""
    from sweeper.results.registry import register as register_model
    from sweeper.results.sweep import load

    picked = load(sweep).pick(max_epsilon, read_minimum(minimum))
    made = register_model(picked, name, tracking=tracking, data_dir=data_dir)
    typer.echo(f"{made.name}, version {made.version}, in {made.store}")
    typer.echo(f'Load it: mlflow.pyfunc.load_model("{made.uri}")')


@app.command()
def note(
    sweep: SweepFolderArgument,
    trial: TrialArgument,
    text: Annotated[str, typer.Argument(help="What to note.", show_default=False)],
) -> None:
    """Note something about a trial, while the sweep runs or after."""
    from sweeper.results.notes import add_note

    _say(add_note(sweep, trial, text))


@app.command()
def tag(
    sweep: SweepFolderArgument,
    trial: TrialArgument,
    pair: Annotated[str, typer.Argument(metavar="KEY=VALUE", help="The tag.", show_default=False)],
) -> None:
    """Tag a trial, while the sweep runs or after."""
    from sweeper.results.notes import add_tag

    key, sign, value = pair.partition("=")
    if not sign:
        raise RecordError(f"Expected KEY=VALUE, got {pair!r}")
    _say(add_tag(sweep, trial, key.strip(), value.strip()))


@app.command()
def delete(
    sweep: SweepFolderArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Delete its MLflow runs too.")] = False,
    forget: Annotated[bool, typer.Option("--forget-ledger", help="Do not keep what it spent.")] = False,
) -> None:
    """Delete a sweep; what it spent is kept."""
    from sweeper.results.housekeeping import check_not_running, delete_sweep

    check_not_running(sweep)
    if not (yes or _agreed(f"Delete {sweep} with its models?")):
        typer.echo("Nothing was deleted")
        return
    done = delete_sweep(sweep, runs=runs, forget=forget)
    typer.echo(f"Deleted {done.folder}" + (f" and {done.runs} MLflow runs" if done.runs else ""))
    if done.kept is not None:
        typer.echo(f"The privacy that it spent stays spent: ledger, spec and claim are in {done.kept}")


@app.command()
def gc(
    out: Annotated[Path, typer.Argument(help="The folder where sweeps live.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; only listed otherwise.")] = False,
) -> None:
    """List, or remove, what ended sweeps no longer need."""
    from sweeper.results.housekeeping import garbage, remove

    found = garbage(out)
    for one in found:
        typer.echo(f"{one.size / MEBIBYTE:10.2f} MiB  {one.path}: {one.why}")
    if yes:
        typer.echo(f"{remove(found) / MEBIBYTE:10.2f} MiB freed")
    else:
        typer.echo(f"{sum(one.size for one in found) / MEBIBYTE:10.2f} MiB could be freed: add --yes")


def read_minimum(texts: list[str] | None) -> dict[str, float]:
    """Return the conditions of ``--min``.

    Raises:
        PickError: not OBJECTIVE=NUMBER.
    """
    found = {}
    for text in texts or []:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise PickError(f"Expected OBJECTIVE=NUMBER such as certified@36/255=0.3, got {text!r} (--min)") from None
    return found


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question)
    except typer.Abort:
        raise RecordError(f"Expected an answer to: {question} Nothing was deleted; add --yes to delete it") from None


def _say(trouble: str | None) -> None:
    """Say where a note went; one that did not reach MLflow is kept all the same."""
    typer.echo(
        "Kept in the sweep's folder and in MLflow" if trouble is None else f"Kept in the sweep's folder; {trouble}"
    )
