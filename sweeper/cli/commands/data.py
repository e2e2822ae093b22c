"""The commands ``sweeper data``: known data sets, and ranges files for tables."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sweeper.cli.options import DataDir

app = typer.Typer(
    name="data", help="Data sets: list, fetch, verify, and write a ranges file to fill in.", no_args_is_help=True
)

DataName = Annotated[str, typer.Argument(help="A data set known by name.")]


@app.command("list")
def list_() -> None:
    """List the data sets known by name."""
    import clipless

    for name, line in clipless.datasets.available().items():
        typer.echo(f"{name:16} {line}")


@app.command()
def fetch(name: DataName, data_dir: DataDir = None) -> None:
    """Fetch a data set into the cache, or read it from a folder, and say what it is."""
    _describe(name, data_dir)


@app.command()
def verify(name: DataName, data_dir: DataDir = None) -> None:
    """Read a data set and verify its checksum and its declarations."""
    _describe(name, data_dir)
    typer.echo("verified")


@app.command()
def ranges(
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


def _describe(name: str, data_dir: Path | None) -> None:
    import clipless

    data: Any = clipless.datasets.load(name, data_dir=data_dir)
    declared = data.metadata
    sizes = f"train {len(data.train)}, validation {len(data.validation)}, test {len(data.test)}"
    typer.echo(f"{declared.name}: {sizes}; shape {declared.input_shape}, {len(declared.classes)} classes")
    typer.echo(f"evaluation rows: {declared.evaluation.value}; privacy unit: {declared.unit}")
    for fact in declared.public_facts:
        typer.echo(f"  public: {fact}")
