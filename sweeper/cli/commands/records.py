"""Commands on what sweeps keep: notes, tags and logs of trials, tracking rows that wait, and folders to delete."""

from pathlib import Path
from typing import Annotated

import typer

from sweeper.cli.options import OtherTracking, SweepFolder, TrialId
from sweeper.errors import RecordError
from sweeper.rounding import number_of

MEBIBYTE = 2**20

app = typer.Typer()


@app.command()
def log(sweep: SweepFolder, trial: TrialId) -> None:
    """Print the history of a trial, epoch by epoch, and why it ended."""
    from sweeper.results.trial_log import trial_log

    typer.echo(trial_log(sweep, trial))


@app.command()
def note(
    sweep: SweepFolder,
    trial: TrialId,
    text: Annotated[str, typer.Argument(help="The text of the note.", show_default=False)],
) -> None:
    """Add a note to a trial, while the sweep runs or afterwards."""
    from sweeper.results.notes import add_note

    _say(add_note(sweep, trial, text))


@app.command()
def tag(
    sweep: SweepFolder,
    trial: TrialId,
    pair: Annotated[str, typer.Argument(metavar="KEY=VALUE", help="The tag.", show_default=False)],
) -> None:
    """Set a tag of a trial, while the sweep runs or afterwards."""
    from sweeper.results.notes import add_tag

    key, sign, value = pair.partition("=")
    if not sign:
        raise RecordError(f"Expected KEY=VALUE, got {pair!r}")
    _say(add_tag(sweep, trial, key.strip(), value.strip()))


@app.command()
def replay(sweep: SweepFolder, tracking: OtherTracking = None) -> None:
    """Deliver the tracking rows that a sweep kept while its store was unreachable."""
    from sweeper.store.sweep_folder import check_may_be_seen
    from sweeper.tracking.tracker import SPOOL_NAME, replay_spool

    check_may_be_seen(sweep)
    rows = replay_spool(sweep / SPOOL_NAME, tracking)
    typer.echo(f"{number_of(rows, 'row')} delivered")


@app.command()
def delete(
    sweep: SweepFolder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Delete its MLflow runs too.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget-ledger", help="Delete the record of its spent privacy too.")
    ] = False,
) -> None:
    """Delete a sweep; the record of its spent privacy is kept."""
    from sweeper.account.receipts import RECEIPT_NAME
    from sweeper.results.housekeeping import check_not_running, delete_sweep

    check_not_running(sweep)
    if not (yes or _ask_consent(f"Delete {sweep} with its models?")):
        typer.echo("Nothing was deleted")
        return
    done = delete_sweep(sweep, runs=runs, forget=forget)
    typer.echo(f"Deleted {done.folder}" + (f" and {done.runs} MLflow runs" if done.runs else ""))
    if done.kept is not None:
        typer.echo(f"The privacy that it spent stays spent: ledger, spec and claim are in {done.kept}")
        if (done.kept / RECEIPT_NAME).exists():
            typer.echo(f"What it reserved and did not draw is given back by: sweeper account settle {done.kept}")


@app.command()
def gc(
    out: Annotated[Path, typer.Argument(help="The folder where sweeps live.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; otherwise they are only listed.")] = False,
) -> None:
    """List, or remove, files that ended sweeps no longer need."""
    from sweeper.results.housekeeping import garbage, remove

    found = garbage(out)
    for one in found:
        typer.echo(f"{one.size / MEBIBYTE:10.2f} MiB  {one.path}: {one.why}")
    if yes:
        typer.echo(f"{remove(found) / MEBIBYTE:10.2f} MiB freed")
    else:
        typer.echo(f"{sum(one.size for one in found) / MEBIBYTE:10.2f} MiB could be freed: add --yes")


def _ask_consent(question: str) -> bool:
    try:
        return typer.confirm(question)
    except typer.Abort:
        raise RecordError(f"Expected an answer to: {question} Nothing was deleted; add --yes to delete it") from None


def _say(trouble: str | None) -> None:
    """Say where a note went; one that did not reach MLflow is kept all the same."""
    typer.echo(
        "Kept in the sweep's folder and in MLflow" if trouble is None else f"Kept in the sweep's folder; {trouble}"
    )
