"""The commands ``sweeper data``: known data sets, and ranges files for tables."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeper.cli.options import DataDir
from sweeper.errors import SpecError
from sweeper.program import program

app = typer.Typer(
    name="data", help="Data sets: list, fetch, verify, and write a ranges file to fill in.", no_args_is_help=True
)

USUAL_BUDGET = 3
_SPEC_HEAD = """\
# A complete spec. What it leaves out is chosen for the table from public numbers; `sweeper check {spec}` shows it.
# sweep_epsilon is the price of the sweep: of the search, its front and every model.
"""

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
    spec: Annotated[
        Path | None,
        typer.Option(help="The spec to write beside it; by default it has the name of the table.", show_default=False),
    ] = None,
) -> None:
    """Write a ranges file for a table, to fill in from public knowledge, and beside it a spec that is complete."""
    from clipless.datasets import write_ranges_template
    from sweeper.store.jsonl import replace_file

    if output is None and spec is not None:
        raise SpecError(f"Expected --output beside --spec {spec}, which names the ranges file; add it")
    text = write_ranges_template(file, target, from_data=from_data)
    if output is None:
        typer.echo(text, nl=False)
        return
    beside = spec or _name_spec(file, output)
    if output.exists():
        raise SpecError(f"Expected no file {output}, which may be filled in (--output); remove it, or name another")
    replace_file(output, text)
    labels = ", that of the labels' column too: no --target names it" if 'column: "???"' in text else ""
    typer.echo(f"{output}: {'filled in from the rows' if from_data else f'replace every ???{labels}'}")
    if beside.exists():
        typer.echo(f"{beside}: kept as it is")
    else:
        replace_file(beside, _write_spec(file, target, output, beside))
        typer.echo(f"{beside}: a complete spec; what it leaves out is chosen for the table")
    typer.echo(f"then: {program()} check {beside}")


def _name_spec(table: Path, ranges: Path) -> Path:
    """Return where the spec of a table goes: beside its ranges file, under the name of the table."""
    stem = table.name.split(".")[0]
    named = ranges.parent / f"{stem}.yaml"
    return ranges.parent / f"{stem}.sweep.yaml" if named == ranges else named


def _write_spec(table: Path, target: str | None, ranges: Path, spec: Path) -> str:
    """Return the text of a spec for a table; paths in it are relative to its folder."""
    import yaml

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", table.name.split(".")[0]).lstrip("._-")[:100] or "table"
    path, declared = (os.path.relpath(one.resolve(), spec.resolve().parent) for one in (table, ranges))
    data = {"path": path, **({} if target is None else {"target": target}), "ranges": declared}
    content = {"name": name, "data": data, "privacy": {"sweep_epsilon": USUAL_BUDGET}}
    return _SPEC_HEAD.format(spec=spec.name) + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _describe(name: str, data_dir: Path | None) -> None:
    import clipless

    data: Any = clipless.datasets.load(name, data_dir=data_dir)
    declared = data.metadata
    sizes = f"train {len(data.train)}, validation {len(data.validation)}, test {len(data.test)}"
    typer.echo(f"{declared.name}: {sizes}; shape {declared.input_shape}, {len(declared.classes)} classes")
    typer.echo(f"evaluation rows: {declared.evaluation.value}; privacy unit: {declared.unit}")
    for fact in declared.public_facts:
        typer.echo(f"  public: {fact}")
