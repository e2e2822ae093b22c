"""Commands for the models of a front: pick one, diagnose it, predict with it, register it."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sweeper.cli.options import DataDir, MaxEpsilon, MaxPrice, Minimum, OtherTracking, SweepFolder
from sweeper.errors import RecordError
from sweeper.program import program
from sweeper.rounding import number_of

app = typer.Typer()


@app.command()
def pick(
    sweep: SweepFolder,
    max_price: MaxPrice = None,
    max_epsilon: MaxEpsilon = None,
    minimum: Minimum = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for model, card and config.")] = None,
    data_dir: DataDir = None,
    sign: Annotated[
        Path | None, typer.Option(help="File of a private key that signs the card; sweeper federated key makes one.")
    ] = None,
) -> None:
    """Take one point of the front: write its model, configuration and privacy card, and say which it is."""
    from sweeper.results.highlights import point_lines
    from sweeper.results.sweep import load

    identity = None
    if sign is not None:
        from sweeper.federated.keys import read_key

        identity = read_key(sign)
    picked = load(sweep).pick(max_epsilon, _minimum(minimum), max_price=max_price)
    folder = output or sweep / "picked" / picked.point.name
    trouble = picked.write(folder, data_dir, identity)
    for line in point_lines(picked.point, picked.sweep.front()):
        typer.echo(line)
    typer.echo(picked.card.prices())
    typer.echo(f"Model and configuration: {folder}")
    typer.echo(f"Privacy card: {folder / 'card.md'}")
    signed = "" if identity is None else f" --key {identity.signing_public.hex()}"
    typer.echo(f"Check it: {program()} verify {folder}{signed}")
    typer.echo(f'Load it: clipless.load("{folder / "model.safetensors"}")')
    if trouble is None:
        vote = "" if picked.card.content.smoothed is None else "; --smoothed: by the vote that smoothed@R is about"
        typer.echo(f"Predict new rows: {program()} predict {folder} FILE{vote}")
    else:
        typer.echo(f"It cannot be given new rows by predict: {trouble}")


@app.command()
def diagnose(
    sweep: SweepFolder,
    trial: Annotated[str | None, typer.Option(help="A trial; by default that of the point `pick` takes.")] = None,
    epoch: Annotated[int | None, typer.Option(help="An epoch whose model was kept; the last one by default.")] = None,
    data_dir: DataDir = None,
    rows: Annotated[int, typer.Option(help="How many validation rows to look at.", min=1)] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The page to write, FILE.html.")] = None,
) -> None:
    """Compare bounds, noise and clipping of one point with what public rows do."""
    from sweeper.results.models.diagnose import diagnose_sweep, write_diagnosis

    found = diagnose_sweep(sweep, trial=trial, epoch=epoch, data_dir=data_dir, rows=rows)
    page = output or sweep / "diagnostics" / found.name / "diagnostics.html"
    record = write_diagnosis(found, page)
    typer.echo(f"{page}\n{record}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="What sweeper pick wrote, or a sweep.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="A table, or images as npz, png or jpg.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="FILE.csv or FILE.parquet; printed by default.")
    ] = None,
    max_price: MaxPrice = None,
    max_epsilon: MaxEpsilon = None,
    minimum: Minimum = None,
    data_dir: DataDir = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="A column of the table to keep beside the predictions; repeatable.")
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Encode what is not declared as training did, categories as zeros.")
    ] = False,
    smoothed: Annotated[
        bool, typer.Option("--smoothed", help="Predict by the vote under noise that smoothed@R is about.")
    ] = False,
    draws: Annotated[
        int | None, typer.Option(help="With --smoothed: draws of each row; by default those of the card.")
    ] = None,
) -> None:
    """Predict new rows: class, a score and a probability per class, and a certified radius."""
    if not data.exists():
        from clipless.spelling import did_you_mean_file

        remedy = did_you_mean_file(data) or "give its path"
        raise RecordError(f"Expected rows to predict, found no file {data}; {remedy}")  # before the imports of a model
    from sweeper.results.models.predict import check_output, load_predictor, predictions_as_csv, write_predictions
    from sweeper.results.models.predict_smoothed import SmoothedPredictor, choose_predictor

    if output is not None:
        check_output(output, data)
    limits = {"max_epsilon": max_epsilon, "max_price": max_price}
    loaded = load_predictor(model, **limits, minimum=_minimum(minimum), data_dir=data_dir)
    predictor = choose_predictor(loaded, smoothed=smoothed, draws=draws)
    rows = predictor.form.read(data, allow_unknown=allow_unknown, ids=ids or ())
    if isinstance(predictor, SmoothedPredictor):
        typer.echo(predictor.in_words(), err=True)
    frame = predictor(rows, tell=partial(typer.echo, err=True))
    if predictor.exploratory:
        typer.echo("Exploratory: no guarantee. See the model's card.", err=True)
    if output is None:
        typer.echo(predictions_as_csv(frame), nl=False)
    else:
        write_predictions(frame, output)
        typer.echo(f"{number_of(len(frame), 'row')}: {output}")


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="What sweeper pick wrote, or a sweep.", show_default=False)],
    federated: Annotated[
        Path, typer.Option(help="The file of the parties and servers, and of what it costs.", show_default=False)
    ],
    key: Annotated[
        Path | None, typer.Option(help="File of the private key of who is told the result, for servers elsewhere.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new FILE.json to write the curves to.")
    ] = None,
) -> None:
    """Evaluate a picked model over parties that share no row: ROC curve, accuracy and certified accuracy."""
    from sweeper.federated.evaluation import evaluation_lines
    from sweeper.federated.local import check_output, write_evaluation
    from sweeper.federated.local import evaluate as evaluate_

    if output is not None:
        check_output(output)
    found = evaluate_(model, federated, key)
    for line in evaluation_lines(found):
        typer.echo(line)
    if output is not None:
        write_evaluation(found, output)
        typer.echo(str(output))


@app.command()
def register(
    sweep: SweepFolder,
    name: Annotated[str, typer.Option(help="Name of the registered model.", show_default=False)],
    max_price: MaxPrice = None,
    max_epsilon: MaxEpsilon = None,
    minimum: Minimum = None,
    tracking: OtherTracking = None,
    data_dir: DataDir = None,
) -> None:
    """Register a picked model with MLflow."""
    from sweeper.results.models.registry import register as register_model
    from sweeper.results.sweep import load

    picked = load(sweep).pick(max_epsilon, _minimum(minimum), max_price=max_price)
    made = register_model(picked, name, tracking=tracking, data_dir=data_dir)
    typer.echo(f"{made.name}, version {made.version}, in {made.store}")
    typer.echo(f'Load it: mlflow.pyfunc.load_model("{made.uri}"); {made.takes}')


def _minimum(texts: list[str] | None) -> dict[str, float]:
    from sweeper.results.pick import read_numbers

    return read_numbers(texts, "certified@36/255=0.3", "--min")
