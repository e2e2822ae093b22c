"""Commands for a model that leaves: check it by its papers, and write what registries and offices ask for."""

from pathlib import Path
from typing import Annotated

import typer

from sweeper.cli.options import choices
from sweeper.errors import RecordError

app = typer.Typer()
FALSE = 1  # exit code where something does not hold

EXPORTS = ("registry", "nist", "edpb")
TEXTS = (".yaml", ".yml", ".json", ".md", ".txt")  # what they are written to
PickedFolder = Annotated[
    Path, typer.Argument(help="What sweeper pick wrote, or the card.json in it.", show_default=False)
]


@app.command()
def verify(
    folder: PickedFolder,
    key: Annotated[str | None, typer.Option(help="The public key that must have signed the card.")] = None,
) -> None:
    """Check a picked model by its papers alone: schema, hashes, signature, and every claim against the ledger."""
    from sweeper.papers.signature import read_public
    from sweeper.papers.verification import verify_papers

    sound = True
    for check in verify_papers(folder, None if key is None else read_public(key)):
        sound = sound and not check.failure
        typer.echo(check.failure or f"holds: {check.holds}", err=bool(check.failure))
    if not sound:
        typer.echo(f"not verified: {folder}", err=True)
        raise typer.Exit(FALSE)
    typer.echo(f"verified: {folder}")


@app.command()
def card(
    folder: PickedFolder,
    as_: Annotated[str, typer.Option("--as", help="For whom.", show_default=False, **choices(EXPORTS))],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; printed by default.")
    ] = None,
) -> None:
    """Write what a registry or an office asks for, from the card of a picked model."""
    from sweeper.papers.annexes import export_card

    text = export_card(folder, as_)
    if output is None:
        typer.echo(text, nl=False)
    else:
        from sweeper.papers.files import check_no_record, check_replaces
        from sweeper.store.jsonl import replace_file

        if output.suffix not in TEXTS:
            raise RecordError(f"Expected a file name that ends in {', '.join(TEXTS)}, got {output} (--output)")
        check_no_record(output)
        check_replaces(output, text.encode())
        replace_file(output, text)
        typer.echo(str(output))
