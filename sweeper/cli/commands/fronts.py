"""Commands that read sweeps: list them, show one, draw its front, compare several, attack what one claims."""

from pathlib import Path
from typing import Annotated

import typer

from clipless.spelling import did_you_mean_file
from sweeper.cli.options import (
    DEFAULT_OUT,
    FORMATS,
    NAMES_OF_FIGURES,
    Caption,
    ComparedFigure,
    Figure,
    Font,
    NoTitle,
    Out,
    Preset,
    SweepFolder,
    Width,
    choices,
    find_sweep,
)
from sweeper.errors import ExportError, RecordError
from sweeper.program import program

EXIT_CONTRADICTED = 1
app = typer.Typer()


@app.command("list")
def list_(
    folder: Annotated[
        Path | None, typer.Argument(help="Where sweeps live; --out names it too.", show_default=False)
    ] = None,
    out: Out = DEFAULT_OUT,
) -> None:
    """List the sweeps in a folder."""
    out = folder or out
    if not out.is_dir() and (folder is not None or out.exists()):
        remedy = did_you_mean_file(out) or "give its path"
        raise RecordError(f"Expected a folder of sweeps, but {out} is none; {remedy}")
    from sweeper.cli.tables import print_view, sweeps_table
    from sweeper.store.sweep_folder import hidden_sweeps, list_sweeps

    if hidden_sweeps(out):
        from sweeper.driver.selection.private_run import recover_all

        for line in recover_all(out):
            typer.echo(line)
    found = list_sweeps(out)
    if not found:
        typer.echo(f"No sweep in {out}; start one with: {program()} run SPEC --out {out}")
        return
    print_view(sweeps_table(found))


@app.command()
def show(sweep: SweepFolder) -> None:
    """Show a sweep: its front, its trials and how they ended, and what it cost."""
    from sweeper.cli.tables import print_view, sweep_view
    from sweeper.results.sweep import load

    print_view(sweep_view(load(sweep)))


@app.command()
def front(
    sweep: SweepFolder,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="By default what --output ends in, else html, or png of a size.",
            show_default=False,
            **choices(FORMATS),
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    figure: Figure = None,
    preset: Preset = None,
    width: Width = None,
    font: Font = None,
    no_title: NoTitle = False,
    caption: Caption = False,
) -> None:
    """Write the front of a sweep, its report, or one of its figures to a file."""
    from sweeper.results.exporters import Paper, exporter
    from sweeper.results.sweep import load

    load(sweep)
    if figure == NAMES_OF_FIGURES:
        _echo_figures(sweep)
        return
    place = sweep if figure is None else sweep / "figures"  # a figure called front is not the front of the sweep
    paper = Paper.of(preset, width, font, title=not no_title, caption=caption)
    path = output or place / f"{figure or 'front'}.{format_ or ('html' if paper is None else 'png')}"
    if format_ is not None and path.suffix != f".{format_}":
        raise ExportError(f"Expected a file name that ends in .{format_}, got {path}: change --output or --format")
    exporter("front")(sweep, path, figure, paper)
    typer.echo(_written(path, caption=caption))


@app.command()
def compare(
    sweeps: Annotated[list[Path], typer.Argument(help="The folders of two sweeps or more.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file to write: html, png, svg, pdf, csv, tex or json.")
    ] = None,
    figure: ComparedFigure = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare sweeps of different delta, relation, data or objectives.")
    ] = False,
    reference: Annotated[
        list[str] | None,
        typer.Option(help='Worst value that counts in the hypervolume, "epsilon=10"; repeatable.'),
    ] = None,
    linear_epsilon: Annotated[
        bool, typer.Option("--linear-epsilon", help="Measure epsilon itself, not its logarithm.")
    ] = False,
    preset: Preset = None,
    width: Width = None,
    font: Font = None,
    no_title: NoTitle = False,
    caption: Caption = False,
) -> None:
    """Compare sweeps: hypervolume of each, and differences between specs with their confidence."""
    from sweeper.cli.tables import comparison_view, print_view
    from sweeper.results.comparison import compare as compare_fronts
    from sweeper.results.exporters import Paper, exporter
    from sweeper.results.pick import read_numbers
    from sweeper.results.sweep import load

    given = {str(sweep): load(find_sweep(sweep)) for sweep in sweeps}
    fronts = [(label, one.front()) for label, one in given.items()]
    if figure not in (None, NAMES_OF_FIGURES) and output is None:
        raise ExportError("Expected --output for a figure of several sweeps, got none: name the file to write")
    found = compare_fronts(
        fronts,
        anyway=anyway,
        reference=read_numbers(reference, "epsilon=10", "--reference"),
        log_epsilon=not linear_epsilon,
        specs={label: one.manifest().spec for label, one in given.items()},
    )
    if figure == NAMES_OF_FIGURES:
        _echo_figures(found)
        return
    paper = Paper.of(preset, width, font, title=not no_title, caption=caption)
    if paper is not None and output is None:
        raise ExportError("Expected --output for a picture of a size, got none: name a png, svg or pdf")
    written = None if output is None else exporter("comparison")(found, output, figure, paper)
    print_view(comparison_view(found))
    if written is not None:
        typer.echo(_written(written, caption=caption))


def _echo_figures(of: object) -> None:
    """Print the names of figures, one in each line; what is lacking for others goes where no pipe reads."""
    from sweeper.results.exporters import list_figures

    names, lacking = list_figures(of)
    typer.echo(names)
    if lacking:
        typer.echo(lacking, err=True)


def _written(path: Path, *, caption: bool) -> str:
    """Return what was written, one path in each line."""
    from sweeper.results.exporters import caption_beside

    return f"{path}\n{caption_beside(path)}" if caption else str(path)


@app.command()
def audit(
    sweep: SweepFolder,
    point: Annotated[
        str | None,
        typer.Argument(help="A trial, or one of its points such as t0007-12; all of the front by default."),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Search longer, and train once with canaries on made-up rows.")
    ] = False,
    price: Annotated[
        bool, typer.Option("--price/--no-price", help="Attack the price of the sweep by simulation.")
    ] = True,
) -> None:
    """Attack the privacy claims of a sweep; what is contradicted is refused from its front."""
    from clipless.audits.audited_training import Effort
    from sweeper.audits.sweep_audit import audit_sweep, contradictions, rewrite
    from sweeper.cli.tables import audit_view, print_view
    from sweeper.store.evidence import EVIDENCE_NAME, in_words

    effort = Effort.THOROUGH if thorough else Effort.CHEAP
    rows = audit_sweep(sweep, point, effort=effort, price=price, tell=lambda said: typer.echo(said, err=True))
    print_view(audit_view(rows))
    typer.echo(f"Evidence: {sweep / EVIDENCE_NAME}")
    wrong = contradictions(rows)
    if wrong:
        for said in rewrite(sweep):
            typer.echo(said, err=True)
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        typer.echo(f"An audit contradicts a claim, whose points are refused: {in_words(wrong[0])}{more}", err=True)
        raise typer.Exit(EXIT_CONTRADICTED)
