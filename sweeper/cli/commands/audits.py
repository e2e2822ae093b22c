"""The command that attacks what a sweep claims."""

from typing import Annotated

import typer

from sweeper.cli.options import SweepFolder

EXIT_CONTRADICTED = 1

app = typer.Typer()


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
    from clipless.audits.audited import Effort
    from sweeper.audits.sweep_audit import audit_sweep, contradictions, rewrite
    from sweeper.cli.tables import audit_table, print_view
    from sweeper.store.evidence import EVIDENCE_NAME, in_words

    effort = Effort.THOROUGH if thorough else Effort.CHEAP
    rows = audit_sweep(sweep, point, effort=effort, price=price, tell=lambda said: typer.echo(said, err=True))
    print_view(audit_table(rows))
    typer.echo(f"Evidence: {sweep / EVIDENCE_NAME}")
    wrong = contradictions(rows)
    if wrong:
        for said in rewrite(sweep):
            typer.echo(said, err=True)
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        typer.echo(f"An audit contradicts a claim, whose points are refused: {in_words(wrong[0])}{more}", err=True)
        raise typer.Exit(EXIT_CONTRADICTED)
