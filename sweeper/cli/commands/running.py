"""Commands that run a sweep, and those for one that runs: stop it or one of its trials, try a configuration next."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeper.backend.jobs import is_job_server
from sweeper.cli.options import DEFAULT_OUT, DataDir, OtherCluster, OtherTracking, Out, SpecFile, SweepFolder, Webhook
from sweeper.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sweeper.driver.finished import FinishedSweep
    from sweeper.driver.options import Options
    from sweeper.spec.spec import Spec

EXIT_FAILED_JOB = 2
EXIT_INTERRUPTED = 130

app = typer.Typer()


@app.command()
def run(
    spec: SpecFile,
    out: Out = DEFAULT_OUT,
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
    duration_is_seen: Annotated[
        bool,
        typer.Option(
            "--duration-is-seen",
            help="Consent that others see how long a private selection takes, which --into, --cluster and --storage "
            "need; whoever may run code on the cluster can read what trains there.",
        ),
    ] = False,
) -> None:
    """Run a sweep; Ctrl-C stops it and keeps the front of the finished work."""
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
        consent = ["--duration-is-seen"] if duration_is_seen else []
        _run_as_job(read, str(cluster), [*consent, *(part for pair in more.items() for part in pair)])
        return
    home = out if into is None else into.parent
    options = Options(
        out=home,
        into=into,
        data_dir=data_dir,
        tracking=tracking,
        cluster=cluster,
        storage=storage,
        duration_is_seen=duration_is_seen,
    )
    _drive(options, lambda shown: run_sweep(read, shown), webhook, read.name, into)


@app.command()
def resume(
    sweep: SweepFolder,
    data_dir: DataDir = None,
    tracking: OtherTracking = None,
    cluster: OtherCluster = None,
    webhook: Webhook = None,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up", help="Make an ordinary sweep of a private selection, at the price of all its trials."
        ),
    ] = False,
) -> None:
    """Resume a sweep that was interrupted or killed.

    Options you omit keep the values the sweep was started with.
    """
    _resume(sweep, None, data_dir, tracking, cluster, webhook, give_up=give_up)


@app.command()
def extend(
    sweep: SweepFolder,
    trials: Annotated[int, typer.Option(help="Number of trials in all, including those that ran.", min=1)],
    data_dir: DataDir = None,
    tracking: OtherTracking = None,
    cluster: OtherCluster = None,
    webhook: Webhook = None,
) -> None:
    """Run more trials of a sweep, whether it has ended or not.

    Options you omit keep the values the sweep was started with.
    """
    _resume(sweep, trials, data_dir, tracking, cluster, webhook)


@app.command()
def stop(
    sweep: SweepFolder,
    trial: Annotated[str | None, typer.Argument(help="Only this trial, after its epoch.", show_default=False)] = None,
) -> None:
    """Stop a running sweep, or one of its trials."""
    from sweeper.store.requests import ask_to_stop

    ask_to_stop(sweep, trial)
    typer.echo(f"asked to stop: {trial or sweep}")


@app.command()
def enqueue(
    sweep: SweepFolder,
    values: Annotated[
        list[str], typer.Option("--set", help='A hyperparameter, "training.learning_rate=0.05"; repeatable.')
    ],
) -> None:
    """Enqueue a configuration as the next trial; hyperparameters you omit are sampled."""
    from sweeper.store.requests import enqueue as enqueue_

    chosen = enqueue_(sweep, dict(map(_setting, values)))
    typer.echo("comes next: " + ", ".join(f"{name}={value}" for name, value in chosen.items()))


def _resume(
    sweep: Path,
    trials: int | None,
    data_dir: Path | None,
    tracking: str | None,
    cluster: str | None,
    webhook: str | None,
    *,
    give_up: bool = False,
) -> None:
    from sweeper.driver.options import Options
    from sweeper.driver.runner import resume_sweep

    options = Options(data_dir=data_dir, tracking=tracking, cluster=cluster)
    resumed = partial(resume_sweep, sweep, trials=trials, give_up=give_up)
    _drive(options, resumed, webhook, sweep.name, sweep)


def _drive(
    options: "Options",
    drive: "Callable[[Options], FinishedSweep]",
    webhook: str | None,
    name: str,
    folder: Path | None,
) -> None:
    from sweeper.driver.failure import noting
    from sweeper.driver.progress import Display, closing_summary
    from sweeper.driver.selection.private_run import SelectionWaitsError
    from sweeper.driver.selection.unfinished import has_final_left
    from sweeper.driver.webhook import announce, failure, summary
    from sweeper.spec.addresses import check_url

    if webhook is not None:
        check_url(webhook)
    waits: SelectionWaitsError | None = None
    with Display() as display, noting(folder):
        try:
            ended = drive(replace(options, tell=display.tell, show=display.update))
        except SelectionWaitsError as error:
            waits = error
        except BaseException as error:
            if webhook is not None:
                announce(webhook, failure(name, error))
            raise
    if waits is not None:
        typer.echo(str(waits), err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
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
            price=front.price,
            look=ended.look,
            reason=ended.outcome.reason,
            failures=failures,
            left=ended.left,
            notes=notes,
            goes_on=not selects or has_final_left(ended.sweep.directory),
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
        raise typer.Exit(EXIT_FAILED_JOB)


def _setting(text: str) -> tuple[str, Any]:
    from sweeper.spec.yaml_file import parse_mapping

    name, found, value = text.partition("=")
    if not (found and name):
        raise SpecError(f"Expected HYPERPARAMETER=VALUE such as training.learning_rate=0.05, got {text!r} (--set)")
    return name, parse_mapping(f"{name}: {value}", "--set")[name]
