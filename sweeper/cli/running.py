"""The commands for a sweep that runs: stop it or one trial, try a configuration next, read a trial's log."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sweeper.errors import SpecError
from sweeper.spec.yaml_file import parse_mapping

app = typer.Typer()

SweepFolderArgument = Annotated[Path, typer.Argument(help="The folder of a sweep.", show_default=False)]
TrialArgument = Annotated[str, typer.Argument(help="A trial, such as t0007.", show_default=False)]


@app.command()
def stop(
    sweep: SweepFolderArgument,
    trial: Annotated[str | None, typer.Argument(help="Only this trial, after its epoch.", show_default=False)] = None,
) -> None:
    """Stop a running sweep, or one of its trials."""
    from sweeper.store.requests import ask_to_stop

    ask_to_stop(sweep, trial)
    typer.echo(f"asked to stop: {trial or sweep}")


@app.command()
def enqueue(
    sweep: SweepFolderArgument,
    values: Annotated[
        list[str], typer.Option("--set", help='A hyperparameter, "training.learning_rate=0.05"; repeatable.')
    ],
) -> None:
    """Try a configuration next; hyperparameters left out are sampled."""
    from sweeper.store.requests import enqueue as enqueue_

    chosen = enqueue_(sweep, dict(map(_setting, values)))
    typer.echo("comes next: " + ", ".join(f"{name}={value}" for name, value in chosen.items()))


@app.command()
def log(sweep: SweepFolderArgument, trial: TrialArgument) -> None:
    """Print what happened to a trial, epoch by epoch, and why it ended."""
    from sweeper.results.trial_log import trial_log

    typer.echo(trial_log(sweep, trial))


def _setting(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not (found and name):
        raise SpecError(f"Expected HYPERPARAMETER=VALUE such as training.learning_rate=0.05, got {text!r} (--set)")
    return name, parse_mapping(f"{name}: {value}", "--set")[name]
