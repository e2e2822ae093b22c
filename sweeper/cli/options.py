"""Arguments and options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

import typer

from sweeper.errors import SweeperError

DEFAULT_OUT = Path("sweeps-out")

SpecFile = Annotated[Path, typer.Argument(help="The spec, a YAML file.", show_default=False)]
SweepFolder = Annotated[Path, typer.Argument(help="The folder of a sweep.", show_default=False)]
TrialId = Annotated[str, typer.Argument(help="A trial, such as t0007.", show_default=False)]

Out = Annotated[Path, typer.Option(help="Where sweeps live.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local copies of data sets.")]
Webhook = Annotated[str | None, typer.Option(help="http(s) address to notify when the sweep has ended.")]
OtherTracking = Annotated[str | None, typer.Option(help="MLflow tracking URI; by default that of the sweep.")]
OtherCluster = Annotated[str | None, typer.Option(help="Address of a Ray cluster; by default that of the sweep.")]
MaxEpsilon = Annotated[float | None, typer.Option(help="Largest epsilon to accept.")]
Minimum = Annotated[
    list[str] | None,
    typer.Option("--min", help='Smallest value to accept, "certified@36/255=0.3"; repeatable.'),
]
Figure = Annotated[str | None, typer.Option(help="One figure of the report instead of all of it.", show_default=False)]


def read_numbers(texts: list[str] | None, example: str, option: str) -> dict[str, float]:
    """Return the numbers by objective of an option such as ``example``.

    Raises:
        SweeperError: not OBJECTIVE=NUMBER.
    """
    found = {}
    for text in texts or []:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise SweeperError(f"Expected OBJECTIVE=NUMBER such as {example}, got {text!r} ({option})") from None
    return found
