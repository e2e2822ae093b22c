"""Commands that run a sweep, and those for one that runs: stop it or one of its trials, try a configuration next."""

import gc
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeper.backend.on_ray.jobs import is_job_server
from sweeper.backend.workers.fork_server import start_ahead
from sweeper.cli.options import (
    CONSENT,
    DEFAULT_OUT,
    ELSEWHERE,
    Concurrent,
    DataDir,
    OtherCluster,
    OtherPage,
    OtherTracking,
    Out,
    SpecFile,
    Spender,
    SweepFolder,
    Values,
    Webhook,
    WebhookFormat,
    read_values,
)
from sweeper.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sweeper.driver.finished import FinishedSweep
    from sweeper.driver.options import Options
    from sweeper.driver.reporting.alerts import Alerts
    from sweeper.driver.reporting.progress import SweepProgress
    from sweeper.specification.spec import Spec

_FILES = ("data", "data.path", "data.ranges", "search", "search.warm_start")
EXIT_UNWRITTEN = 1
EXIT_FAILED_JOB = 2
EXIT_INTERRUPTED = 130

app = typer.Typer()


@app.command()
def run(
    spec: SpecFile,
    out: Out = DEFAULT_OUT,
    data_dir: DataDir = None,
    values: Values = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials, instead of the spec's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, instead of the spec's.")] = None,
    tracking: Annotated[
        str | None,
        typer.Option(
            envvar="MLFLOW_TRACKING_URI",
            help="MLflow tracking URI; by default one SQLite file for all sweeps of --out.",
            rich_help_panel=ELSEWHERE,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Address of a Ray cluster, or http://HOST:8265 to run as its job; a local Ray by default.",
            rich_help_panel=ELSEWHERE,
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="URL for checkpoints and models, for nodes that do not share --out.", rich_help_panel=ELSEWHERE
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(help="Address of the sweep's live page, for links at the store.", rich_help_panel=ELSEWHERE),
    ] = None,
    webhook: Webhook = None,
    webhook_format: WebhookFormat = "auto",
    spender: Spender = None,
    into: Annotated[
        Path | None, typer.Option(help="A folder made for this sweep beforehand, instead of a new one in --out.")
    ] = None,
    duration_is_seen: Annotated[
        bool,
        typer.Option(
            "--duration-is-seen",
            help="Consent that others see how long a private selection takes, which --into and --storage need.",
            rich_help_panel=CONSENT,
        ),
    ] = False,
) -> None:
    """Run a sweep; Ctrl-C stops it and keeps the front of the finished work."""
    from sweeper.driver.reporting.failure import noting
    from sweeper.planning.sources import check_cluster, check_sources
    from sweeper.specification.spec import Spec

    with noting(into):
        read = Spec.from_yaml(spec, read_values(values)).with_search(trials=trials, seed=seed)
        if not is_job_server(cluster):
            check_sources(read, data_dir)  # before the imports of what trains, which take seconds
        check_cluster(read, cluster)
        _prepare(cluster)
        from sweeper.driver.options import Options, with_environment
        from sweeper.driver.runner import run_sweep
        from sweeper.store.actions import login_name

        with_environment(Options(tracking=tracking))  # a job would name a password in it to all
    if is_job_server(cluster):
        given = {"--out": None if into else out, "--into": into, "--data-dir": data_dir}
        more = {name: str(path.resolve()) for name, path in given.items() if path is not None}
        sent = {"--tracking": tracking, "--storage": storage, "--page": page, "--webhook": webhook}
        sent |= {"--webhook-format": webhook_format} if webhook else {}
        sent |= {"--spender": spender or login_name()} if read.privacy.account is not None else {}
        more |= {name: text for name, text in sent.items() if text}
        # Set again there, so that its record says so; names of files are whole in the spec that is sent.
        sent_values = [f"{name}={json.dumps(value)}" for name, value in read.overrides.items() if name not in _FILES]
        pairs = [*(("--set", text) for text in sent_values), *more.items()]
        _run_as_job(read, str(cluster), [part for pair in pairs for part in pair])
        return
    home = out if into is None else into.parent
    options = Options(
        out=home,
        into=into,
        data_dir=data_dir,
        tracking=tracking,
        cluster=cluster,
        storage=storage,
        page=_check_webhook(page),
        spender=spender,
        duration_is_seen=duration_is_seen,
    )
    alerts = _alerts(webhook, webhook_format, read.name, into, page, silent=read.search.repetitions is not None)
    _drive(options, lambda shown: run_sweep(read, shown), alerts, read.name, into)


@app.command()
def resume(
    sweep: SweepFolder,
    data_dir: DataDir = None,
    tracking: OtherTracking = None,
    cluster: OtherCluster = None,
    page: OtherPage = None,
    concurrent: Concurrent = None,
    spender: Spender = None,
    webhook: Webhook = None,
    webhook_format: WebhookFormat = "auto",
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up",
            help="Make an ordinary sweep of a private selection, whose price composes all its trials.",
            rich_help_panel=CONSENT,
        ),
    ] = False,
) -> None:
    """Resume a sweep that was interrupted or killed.

    Options you omit keep the values the sweep was started with.
    """
    options = _options(data_dir, tracking, cluster, page, concurrent, spender)
    _resume(sweep, None, options, _alerts_of(sweep, webhook, webhook_format, page), give_up=give_up)


@app.command()
def extend(
    sweep: SweepFolder,
    trials: Annotated[int, typer.Option(help="Number of trials in all, including those that ran.", min=1)],
    data_dir: DataDir = None,
    tracking: OtherTracking = None,
    cluster: OtherCluster = None,
    page: OtherPage = None,
    concurrent: Concurrent = None,
    spender: Spender = None,
    webhook: Webhook = None,
    webhook_format: WebhookFormat = "auto",
) -> None:
    """Run more trials of a sweep that has ended, all of it or early.

    Options you omit keep the values the sweep was started with.
    """
    options = _options(data_dir, tracking, cluster, page, concurrent, spender)
    _resume(sweep, trials, options, _alerts_of(sweep, webhook, webhook_format, page))


@app.command()
def stop(
    sweep: SweepFolder,
    trial: Annotated[str | None, typer.Argument(help="Only this trial, after its epoch.", show_default=False)] = None,
) -> None:
    """Stop a running sweep, or one of its trials."""
    from sweeper.store.requests import ask_to_stop

    typer.echo(ask_to_stop(sweep, trial))


@app.command()
def enqueue(
    sweep: SweepFolder,
    values: Annotated[
        list[str], typer.Option("--set", help='A hyperparameter, "training.learning_rate=0.05"; repeatable.')
    ],
) -> None:
    """Enqueue a configuration as the next trial of a sweep; hyperparameters you omit are sampled."""
    from sweeper.store.lock import is_driven
    from sweeper.store.requests import enqueue as enqueue_

    chosen = enqueue_(sweep, read_values(values))
    when = "comes next" if is_driven(sweep) else "comes first when the sweep is resumed or extended"
    typer.echo(f"{when}: " + ", ".join(f"{name}={value}" for name, value in chosen.items()))


@app.command()
def steer(
    sweep: SweepFolder,
    region: Annotated[
        list[str] | None,
        typer.Argument(
            help='Bounds on objectives, "accuracy >= 0.9" "epsilon <= 3"; none: everywhere again.', show_default=False
        ),
    ] = None,
) -> None:
    """Steer the search to a region of the front, from now on or when the sweep is resumed or extended."""
    from sweeper.store.lock import is_driven
    from sweeper.store.requests import steer as steer_

    bounds = steer_(sweep, region or [])
    when = "" if is_driven(sweep) else " (once the sweep is resumed or extended)"
    typer.echo(f"steered to: {', '.join(map(str, bounds)) or 'everywhere'}{when}")


def _prepare(cluster: str | None) -> None:
    """Import what a driver needs; meanwhile another process imports what its workers need."""
    if cluster is None:
        start_ahead()
    gc.disable()  # an eighth of the time that imports take
    try:
        import sweeper.driver.runner  # noqa: F401
    finally:
        gc.enable()


def _options(
    data_dir: Path | None,
    tracking: str | None,
    cluster: str | None,
    page: str | None,
    concurrent: int | None,
    spender: str | None,
) -> "Options":
    from sweeper.driver.options import Options

    return Options(
        data_dir=data_dir,
        tracking=tracking,
        cluster=cluster,
        page=_check_webhook(page),
        concurrent=concurrent,
        spender=spender,
    )


def _resume(sweep: Path, trials: int | None, options: "Options", alerts: "Alerts", *, give_up: bool = False) -> None:
    _prepare(options.cluster)
    from sweeper.driver.runner import resume_sweep

    resumed = partial(resume_sweep, sweep, trials=trials, give_up=give_up)
    _drive(options, resumed, alerts, sweep.name, sweep)


def _drive(
    options: "Options",
    drive: "Callable[[Options], FinishedSweep]",
    alerts: "Alerts",
    name: str,
    folder: Path | None,
) -> None:
    from sweeper.driver.reporting.failure import noting
    from sweeper.driver.reporting.progress import Display, closing_summary
    from sweeper.driver.reporting.webhook import failure, summary
    from sweeper.driver.selection.hidden_folder import has_final_left
    from sweeper.driver.selection.private_run import SelectionWaitsError
    from sweeper.results.highlights import highlights, nearly_best

    waits: SelectionWaitsError | None = None
    with Display() as display, noting(folder):

        def tell(line: str) -> None:
            display.tell(line)
            alerts.start(line.removeprefix(f"{name}: "))

        def show(progress: "SweepProgress") -> None:
            display.update(progress)
            alerts.look(progress)

        try:
            ended = drive(replace(options, tell=tell, show=show))
        except SelectionWaitsError as error:
            waits = error
        except BaseException as error:
            alerts.end(failure(name, error))
            raise
    if waits is not None:
        typer.echo(str(waits), err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    front = ended.front
    failures = {id_: trial.reason for id_, trial in front.trials.items() if trial.status == "failed"}
    failures |= ended.failures
    unpriced = [] if front.price is not None else [front.ledger["everything"].statement]
    advice = front.claim.baselines.advice(one.name for one in front.objectives)
    notes = [*filter(None, [nearly_best(front), advice]), *unpriced, *ended.troubles]
    manifest = ended.sweep.manifest()
    selects = manifest.selects_privately
    if front.claim.exploratory:
        notes.insert(0, "Exploratory: no guarantee. See the claim's conditions in the report.")
    told = summary(
        front,
        status=manifest.status,
        reason=manifest.reason,
        folder=ended.sweep.directory,
        winner_only=selects and not front.ledger["everything"].fixed,
    )
    notes += filter(None, [alerts.end(told)])
    typer.echo(
        closing_summary(
            ended.progress,
            ended.sweep.directory,
            untested=sum(point.test is None for point in front.front_points),
            price=front.price,
            named=highlights(front),
            claim=front.claim,
            look=ended.look,
            reason=ended.outcome.in_words(),
            failures=failures,
            left=ended.left,
            notes=notes,
            goes_on=not selects or has_final_left(ended.sweep.directory),
            has_report=(ended.sweep.directory / "front.html").exists(),
        )
    )
    if ended.outcome.is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if ended.unwritten:
        typer.echo(f"Not all of {ended.sweep.directory} could be written: {ended.unwritten[0]}", err=True)
        raise typer.Exit(EXIT_UNWRITTEN)


def _alerts_of(sweep: Path, url: str | None, form: str, page: str | None) -> "Alerts":
    """Return what tells of a sweep that is there; of one that cannot be read nothing is told on the way."""
    from sweeper.store.manifest import read_manifest

    silent, known = True, None
    with suppress(RecordError):
        manifest = read_manifest(sweep)
        silent, known = manifest.selects_privately, manifest.page
    return _alerts(url, form, sweep.name, sweep, page or known, silent=silent)


def _alerts(
    url: str | None, form: str, name: str, folder: Path | None, page: str | None = None, *, silent: bool
) -> "Alerts":
    from sweeper.driver.reporting.alerts import Alerts
    from sweeper.driver.reporting.webhook import MessageForm
    from sweeper.specification.addresses import check_url

    if url is None:
        return Alerts(None, name)
    return Alerts(check_url(url), name, form=MessageForm.of(url, form), folder=folder, page=page, silent=silent)


def _check_webhook(page: str | None) -> str | None:
    from sweeper.specification.addresses import check_url

    return None if page is None else check_url(page, "an address of a page", "--page")


def with_whole_paths(spec: "Spec") -> "Spec":
    """Return a spec that names the same files from wherever it is read."""
    from sweeper.specification.addresses import find_account

    content, options = spec.to_plain(), spec.data_options()
    if spec.data.path is not None:
        content["data"]["path"] = str(Path(options["source"]).resolve())
    if spec.data.ranges is not None:
        content["data"]["ranges"] = str(Path(options["ranges"]).resolve())
    if spec.privacy.account is not None:
        content["privacy"]["account"] = str(find_account(spec.privacy.account, spec.source))
    earlier = spec.search.warm_start
    if earlier is not None and (beside := Path(spec.source).parent / earlier).exists():
        content["search"]["warm_start"] = str(beside.resolve())
    return type(spec).from_mapping(content, spec.source)


def _run_as_job(spec: "Spec", address: str, arguments: list[str]) -> None:
    from sweeper.backend.interruption import Interruption
    from sweeper.backend.on_ray.jobs import run_as_job

    with Interruption() as interruption:
        say = lambda text: typer.echo(text, nl=False)  # noqa: E731
        well = run_as_job(spec.name, with_whole_paths(spec).to_yaml(), address, arguments, say, interruption)
    if interruption.requested:
        raise typer.Exit(EXIT_INTERRUPTED)
    if not well:
        raise typer.Exit(EXIT_FAILED_JOB)
