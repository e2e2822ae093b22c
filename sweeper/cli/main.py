"""The command line: each command is one function call of the packages and the printing of its result.

Every error ends as one sentence on standard error and exit code 2; ``--debug`` shows the traceback. The
packages are imported by the commands that use them: they take seconds.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeper.backend.jobs import is_job_server
from sweeper.backend.starting import leave
from sweeper.cli.fronts import app as commands_of_fronts
from sweeper.cli.models import app as commands_after
from sweeper.cli.models import read_minimum
from sweeper.cli.running import app as commands_while_running
from sweeper.cli.service import app as commands_of_service
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from sweeper.driver.finished import FinishedSweep
    from sweeper.driver.options import Options
    from sweeper.spec.spec import Spec

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="sweeper",
    help="Privacy / utility / certified-robustness fronts of the models trainable on a data set.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data_app = typer.Typer(help="Data sets: list, fetch, verify, and write a ranges file to fill in.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(commands_after)
app.add_typer(commands_of_fronts)
app.add_typer(commands_while_running)
app.add_typer(commands_of_service)

SpecFile = Annotated[Path, typer.Argument(help="The spec, a YAML file.", show_default=False)]
SweepFolderArgument = Annotated[Path, typer.Argument(help="The folder of a sweep.", show_default=False)]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local copies of data sets.")]
Out = Annotated[Path, typer.Option(help="Where sweeps live.")]
Webhook = Annotated[str | None, typer.Option(help="http(s) address that is told when the sweep has ended.")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Hold what every command takes; `main` looks at it."""


@app.command()
def run(
    spec: SpecFile,
    out: Out = Path("sweeps-out"),
    data_dir: DataDir = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, instead of the spec's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the spec's.")] = None,
    tracking: Annotated[str | None, typer.Option(help="MLflow tracking URI; a SQLite file by default.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster, or http://HOST:8265 to run as its job; a local Ray by default."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL for checkpoints and models, for nodes that do not share --out.")
    ] = None,
    webhook: Webhook = None,
    into: Annotated[
        Path | None, typer.Option(help="A folder made for this sweep beforehand, instead of a new one in --out.")
    ] = None,
) -> None:
    """Run a sweep; Ctrl-C ends it early with the front of what was done."""
    from sweeper.driver.failure import noting
    from sweeper.driver.options import Options
    from sweeper.driver.runner import run_sweep
    from sweeper.spec.spec import Spec

    with noting(into):
        read = Spec.from_yaml(spec).with_search(trials=trials, seed=seed)
    if is_job_server(cluster):
        given = {"--out": None if into else out, "--into": into, "--data-dir": data_dir}
        more = {name: str(path.resolve()) for name, path in given.items() if path is not None}
        sent = {"--tracking": tracking, "--storage": storage, "--webhook": webhook}
        more |= {name: text for name, text in sent.items() if text}
        _run_as_job(read, str(cluster), [part for pair in more.items() for part in pair])
        return
    home = out if into is None else into.parent
    options = Options(out=home, into=into, data_dir=data_dir, tracking=tracking, cluster=cluster, storage=storage)
    _drive(options, lambda shown: run_sweep(read, shown), webhook, read.name, into)


@app.command()
def resume(
    sweep: SweepFolderArgument,
    data_dir: DataDir = None,
    tracking: Annotated[str | None, typer.Option(help="MLflow tracking URI, instead of the one it began with.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Ray cluster, likewise.")] = None,
    webhook: Webhook = None,
) -> None:
    """Go on with a sweep that was killed or interrupted."""
    _resume(sweep, None, data_dir, tracking, cluster, webhook)


@app.command()
def extend(
    sweep: SweepFolderArgument,
    trials: Annotated[int, typer.Option(help="How many trials in all, those that ran included.", min=1)],
    data_dir: DataDir = None,
    tracking: Annotated[str | None, typer.Option(help="MLflow tracking URI, instead of the one it began with.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Ray cluster, likewise.")] = None,
    webhook: Webhook = None,
) -> None:
    """Run more trials of a sweep, ended or not."""
    _resume(sweep, trials, data_dir, tracking, cluster, webhook)


@app.command()
def check(
    spec: SpecFile,
    data_dir: DataDir = None,
    configurations: Annotated[int, typer.Option(help="How many configurations to plan.", min=1)] = 1,
) -> None:
    """Validate a spec and show what it would do, without training."""
    import clipless
    from sweeper.spec.spec import Spec
    from sweeper.trials import preview

    read = Spec.from_yaml(spec)
    data = clipless.datasets.load(**read.data_options(data_dir))
    previews = preview.preview(read, data, configurations)
    _print(preview.render(read, data, previews))


@app.command("list")
def list_(out: Out = Path("sweeps-out")) -> None:
    """List the sweeps in a folder."""
    from sweeper.cli.tables import sweeps_table
    from sweeper.store.sweep_folder import hidden_sweeps, list_sweeps

    if hidden_sweeps(out):
        from sweeper.driver.private_run import recover_all

        for said in recover_all(out):
            typer.echo(said)
    found = list_sweeps(out)
    if not found:
        typer.echo(f"No sweep in {out}; start one with: sweeper run SPEC --out {out}")
        return
    _print(sweeps_table(found))


@app.command()
def show(sweep: SweepFolderArgument) -> None:
    """Show a sweep: its front, its trials and how they ended, and what it cost."""
    from sweeper.cli.tables import sweep_view
    from sweeper.results.sweep import load

    _print(sweep_view(load(sweep)))


@app.command()
def pick(
    sweep: SweepFolderArgument,
    max_epsilon: Annotated[float | None, typer.Option(help="Largest epsilon to accept.")] = None,
    minimum: Annotated[
        list[str] | None,
        typer.Option("--min", help='Smallest value to accept, "certified@36/255=0.3"; repeatable.'),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for model, card and config.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Take one point of the front: its configuration, privacy card and model."""
    from sweeper.results.sweep import load

    picked = load(sweep).pick(max_epsilon, read_minimum(minimum))
    folder = output or sweep / "picked" / f"{picked.point.trial}-{picked.point.epoch}"
    trouble = picked.write(folder, data_dir)
    typer.echo(picked.card.to_markdown())
    typer.echo(f"Model, card and configuration: {folder}")
    typer.echo(f'Load it: clipless.load("{folder / "model.safetensors"}")')
    if trouble is not None:
        typer.echo(f"It cannot be given new rows by sweeper predict: {trouble}")


@app.command()
def diagnose(
    sweep: SweepFolderArgument,
    trial: Annotated[str | None, typer.Option(help="A trial; by default that of the point `pick` takes.")] = None,
    epoch: Annotated[int | None, typer.Option(help="An epoch whose model was kept; the last one by default.")] = None,
    data_dir: DataDir = None,
    rows: Annotated[int, typer.Option(help="How many validation rows to look at.", min=1)] = 1000,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The page to write, FILE.html.")] = None,
) -> None:
    """Compare bounds, noise and clipping of one point with what public rows do."""
    from sweeper.results.diagnose import diagnose_sweep, write_diagnosis

    found = diagnose_sweep(sweep, trial=trial, epoch=epoch, data_dir=data_dir, rows=rows)
    page = output or sweep / "diagnostics" / f"{found.trial}-{found.epoch}" / "diagnostics.html"
    written = write_diagnosis(found, page)
    typer.echo(f"{written.page}\n{written.record}")


@app.command()
def replay(
    sweep: SweepFolderArgument,
    tracking: Annotated[str | None, typer.Option(help="Another MLflow tracking URI than the sweep's.")] = None,
) -> None:
    """Deliver the tracking rows that wait because the store was out of reach."""
    from sweeper.store.sweep_folder import check_may_be_seen
    from sweeper.tracking.tracker import SPOOL_NAME, replay_spool

    check_may_be_seen(sweep)
    rows = replay_spool(sweep / SPOOL_NAME, tracking)
    typer.echo(f"{rows} rows delivered")


@app.command()
def schema() -> None:
    """Print the JSON schema of a spec, for editors."""
    from sweeper.spec.spec import schema as spec_schema

    typer.echo(json.dumps(spec_schema(), indent=2))


@data_app.command("list")
def data_list() -> None:
    """List the data sets known by name."""
    import clipless

    for name, line in clipless.datasets.available().items():
        typer.echo(f"{name:16} {line}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set known by name.")], data_dir: DataDir = None
) -> None:
    """Fetch a data set into the cache, or read it from a folder, and say what it is."""
    _describe_data(name, data_dir)


@data_app.command("verify")
def data_verify(
    name: Annotated[str, typer.Argument(help="A data set known by name.")], data_dir: DataDir = None
) -> None:
    """Read a data set and verify its checksum and its declarations."""
    _describe_data(name, data_dir)
    typer.echo("verified")


@data_app.command("ranges")
def data_ranges(
    file: Annotated[Path, typer.Argument(help="A csv, csv.gz, parquet or npz table.")],
    target: Annotated[str | None, typer.Option(help="Column of the labels.")] = None,
    from_data: Annotated[
        bool,
        typer.Option("--from-data", help="Fill ranges in from the data: unpaid, marks every result exploratory."),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; printed by default.")
    ] = None,
) -> None:
    """Write a ranges file for a table, to fill in from public knowledge."""
    from clipless.datasets import write_ranges_template
    from sweeper.store.jsonl import replace_file

    text = write_ranges_template(file, target, from_data=from_data)
    if output is None:
        typer.echo(text, nl=False)
    else:
        replace_file(output, text)
        typer.echo(str(output))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the entry point of the ``sweeper`` program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    try:
        app(["--debug"] * debug + [argument for argument in arguments if argument != "--debug"])
    except SystemExit as ended:
        leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except Exception as error:
        if debug:
            raise
        typer.echo(f"sweeper: {_sentence(error)}", err=True)
        sys.exit(EXIT_USER_ERROR)


def _resume(
    sweep: Path,
    trials: int | None,
    data_dir: Path | None,
    tracking: str | None,
    cluster: str | None,
    webhook: str | None,
) -> None:
    from sweeper.driver.options import Options
    from sweeper.driver.runner import resume_sweep

    options = Options(data_dir=data_dir, tracking=tracking, cluster=cluster)
    _drive(options, lambda shown: resume_sweep(sweep, shown, trials=trials), webhook, sweep.name, sweep)


def _drive(
    options: "Options",
    drive: "Callable[[Options], FinishedSweep]",
    webhook: str | None,
    name: str,
    folder: Path | None,
) -> None:
    """Show a sweep while it runs, and say how it ended, here and to the webhook."""
    from sweeper.driver.failure import noting
    from sweeper.driver.progress import Display, closing_summary
    from sweeper.driver.webhook import announce, failure, summary
    from sweeper.spec.addresses import check_url

    if webhook is not None:
        check_url(webhook)
    with Display() as display, noting(folder):
        try:
            ended = drive(replace(options, show=display.update))
        except BaseException as error:
            if webhook is not None:
                announce(webhook, failure(name, error))
            raise
    front = ended.front
    failures = {id_: trial.reason for id_, trial in front.trials.items() if trial.status == "failed"}
    failures |= ended.failures
    priced = "everything" if front.ledger["everything"].released else "winner"
    notes = [front.ledger[priced].statement, *ended.troubles]
    manifest = ended.sweep.manifest()
    selects = manifest.selects_privately
    if front.claim.exploratory:
        notes.insert(0, "Exploratory: no guarantee. See the claim's conditions in the report.")
    if webhook is not None:
        told = summary(
            front,
            status=manifest.status.value,
            reason=manifest.reason,
            folder=ended.sweep.directory,
            winner_only=selects,
        )
        notes += filter(None, [announce(webhook, told)])
    typer.echo(
        closing_summary(
            ended.progress,
            ended.sweep.directory,
            look=ended.look,
            reason=ended.outcome.reason,
            failures=failures,
            left=ended.left,
            notes=notes,
            goes_on=not selects,
            has_report=(ended.sweep.directory / "front.html").exists(),
        )
    )
    if ended.outcome.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)


def _run_as_job(spec: "Spec", address: str, arguments: list[str]) -> None:
    from sweeper.backend.interruption import Interruption
    from sweeper.backend.jobs import run_as_job

    with Interruption() as interruption:
        well = run_as_job(spec, address, arguments, lambda text: typer.echo(text, nl=False), interruption)
    if interruption.requested:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not well:
        raise typer.Exit(EXIT_USER_ERROR)


def _print(what: "RenderableType") -> None:
    from sweeper.cli.tables import print_view

    print_view(what)


def _sentence(error: Exception) -> str:
    """Return an error in one sentence; one that nobody raised on purpose is named."""
    from clipless.errors import CliplessError

    if isinstance(error, SweeperError | CliplessError):
        return " ".join(str(error).split())
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected {what}; --debug shows where it came from"


def _describe_data(name: str, data_dir: Path | None) -> None:
    import clipless

    data: Any = clipless.datasets.load(name, data_dir=data_dir)
    declared = data.metadata
    sizes = f"train {len(data.train)}, validation {len(data.validation)}, test {len(data.test)}"
    typer.echo(f"{declared.name}: {sizes}; shape {declared.input_shape}, {len(declared.classes)} classes")
    typer.echo(f"evaluation rows: {declared.evaluation.value}; privacy unit: {declared.unit}")
    for fact in declared.public_facts:
        typer.echo(f"  public: {fact}")
