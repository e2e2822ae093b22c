"""Arguments and options that several commands share, each declared once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeper.errors import RecordError, SpecError, SweeperError
from sweeper.program import program
from sweeper.results.exporters import PRESETS, Format, figure_names
from sweeper.rounding import number_of

DEFAULT_OUT = Path("sweeps-out")

FORMATS = tuple(one.value for one in Format)
ALERT_FORMATS = ("auto", "json", "slack", "teams")

ELSEWHERE, ALERTS, CONSENT = "Where it runs and is tracked", "Alerts", "Private selection"  # headings in the help
PAPER = "Pictures for a paper"


def choices(names: tuple[str, ...]) -> dict[str, Any]:
    """Return what makes an option show its choices and complete them; a wrong one is refused where it is used."""
    return {"metavar": f"[{'|'.join(names)}]", "autocompletion": lambda incomplete: _beginning(names, incomplete)}


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _trials(ctx: typer.Context, incomplete: str) -> list[str]:
    from sweeper.store import sweep_folder

    try:
        sweep_folder.check_may_be_seen(Path(ctx.params["sweep"]))
        return sorted(_beginning(sweep_folder.SweepFolder(ctx.params["sweep"]).trials(), incomplete))
    except (KeyError, TypeError, SweeperError):
        return []


def figures_beginning(incomplete: str) -> list[str]:
    """Return the names of figures of a sweep that begin so, to complete an option."""
    return _beginning(figure_names(), incomplete)


def compared_figures_beginning(incomplete: str) -> list[str]:
    """Return the names of figures of a comparison that begin so, likewise."""
    return _beginning(figure_names(compared=True), incomplete)


def find_sweep(folder: Path) -> Path:
    """Return the folder of a sweep; one that is not there, or that holds sweeps, is refused with the one that is meant.

    Raises:
        RecordError: no such folder, or one of many sweeps.
    """
    from clipless.spelling import did_you_mean_file
    from sweeper.store.manifest import MANIFEST_NAME
    from sweeper.store.sweep_folder import list_sweeps

    if not folder.exists():
        remedy = did_you_mean_file(folder) or f"{program()} list shows those of a folder"
        raise RecordError(f"Expected the folder of a sweep, but there is no {folder}; {remedy}")
    inside = [] if (folder / MANIFEST_NAME).exists() else list_sweeps(folder)
    if inside:
        holds = f"which holds {number_of(len(inside), 'sweep')}; name one, such as {inside[-1].path}"
        raise RecordError(f"Expected the folder of a sweep, got {folder}, {holds}")
    return folder


def read_values(texts: Iterable[str] | None) -> dict[str, Any]:
    """Return the values of ``--set``, by dotted name.

    Raises:
        SpecError: not ``NAME=VALUE``, or no YAML.
    """
    return dict(map(_read_value, texts or ()))


def _read_value(text: str) -> tuple[str, Any]:
    from sweeper.specification.yaml_file import parse_mapping

    name, found, value = text.partition("=")
    name = name.strip()
    parsed = parse_mapping(f"{name}: {value}", "--set") if found and name else {}
    if list(parsed) != [name]:
        raise SpecError(f"Expected NAME=VALUE such as training.learning_rate=0.05, got {text!r} (--set)")
    return name, parsed[name]


SpecFile = Annotated[Path, typer.Argument(help="The spec, a YAML file.", show_default=False)]
SweepFolder = Annotated[Path, typer.Argument(help="The folder of a sweep.", show_default=False, callback=find_sweep)]
TrialId = Annotated[str, typer.Argument(help="A trial, such as t0007.", show_default=False, autocompletion=_trials)]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help='Instead of the spec\'s value, "training.epochs=5"; YAML, null leaves NAME out; repeatable.',
    ),
]

Out = Annotated[Path, typer.Option(help="Where sweeps live.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with local copies of data sets.")]
Webhook = Annotated[
    str | None,
    typer.Option(
        envvar="SWEEPER_WEBHOOK",
        help="http(s) address to tell of start, first front, a budget that is nearly spent, and end.",
        rich_help_panel=ALERTS,
    ),
]
WebhookFormat = Annotated[
    str,
    typer.Option(
        help="What the address understands; auto: told by its host.", rich_help_panel=ALERTS, **choices(ALERT_FORMATS)
    ),
]
OtherTracking = Annotated[
    str | None, typer.Option(help="MLflow tracking URI; by default that of the sweep.", rich_help_panel=ELSEWHERE)
]
OtherCluster = Annotated[
    str | None, typer.Option(help="Address of a Ray cluster; by default that of the sweep.", rich_help_panel=ELSEWHERE)
]
OtherPage = Annotated[
    str | None,
    typer.Option(help="Address of the sweep's live page; by default as before.", rich_help_panel=ELSEWHERE),
]
Concurrent = Annotated[
    int | None,
    typer.Option(help="Processes at once; by default as before.", min=1, rich_help_panel=ELSEWHERE),
]
Spender = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Whose share of the data's account it takes from; yours by default.", show_default=False
    ),
]
MaxPrice = Annotated[float | None, typer.Option(help="Largest price to accept, the epsilon of the whole sweep.", min=0)]
MaxEpsilon = Annotated[float | None, typer.Option(help="Largest own epsilon to accept, fixed in advance.", min=0)]
Minimum = Annotated[
    list[str] | None,
    typer.Option("--min", help='Smallest value to accept, "certified@36/255=0.3"; repeatable.'),
]
NAMES_OF_FIGURES = "list"
_ONE_FIGURE = f"One figure of the page instead of all of it; `{NAMES_OF_FIGURES}` prints their names."
Figure = Annotated[str | None, typer.Option(help=_ONE_FIGURE, show_default=False, autocompletion=figures_beginning)]
ComparedFigure = Annotated[
    str | None,
    typer.Option("--figure", help=_ONE_FIGURE, show_default=False, autocompletion=compared_figures_beginning),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="A column (85 mm, 8 points) or a page (178 mm, 9 points) wide.",
        rich_help_panel=PAPER,
        show_default=False,
        **choices(tuple(PRESETS)),
    ),
]
Width = Annotated[
    float | None, typer.Option(help="Width in millimetres.", rich_help_panel=PAPER, metavar="MM", show_default=False)
]
Font = Annotated[
    float | None,
    typer.Option(
        help="Size of the text in points; 8 with a width.", rich_help_panel=PAPER, metavar="PT", show_default=False
    ),
]
NoTitle = Annotated[bool, typer.Option("--no-title", help="Leave the title out.", rich_help_panel=PAPER)]
Caption = Annotated[
    bool,
    typer.Option(
        "--caption",
        help="Leave title and small print out; write them, and how to read it, beside the picture.",
        rich_help_panel=PAPER,
    ),
]
