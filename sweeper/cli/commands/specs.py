"""Commands on a spec before it is run: check it, and the schema of all of them."""

import json
import shlex
from typing import Annotated, Any

import typer

from clipless.spelling import did_you_mean
from sweeper.cli.options import DataDir, SpecFile, Values, choices, read_values
from sweeper.errors import SweeperError
from sweeper.program import program

app = typer.Typer()
SCHEMAS = ("spec", "card", "registry")
EXIT_REFUSED = 2


@app.command()
def check(
    spec: SpecFile,
    data_dir: DataDir = None,
    values: Values = None,
    details: Annotated[
        bool, typer.Option("--details", help="Show a configuration, other cuts of the budget, what scores cost.")
    ] = False,
    configurations: Annotated[
        int | None, typer.Option(help="How many configurations to show in detail.", min=1)
    ] = None,
    measure: Annotated[
        bool, typer.Option("--estimate/--no-estimate", help="Measure time and memory on rows of zeros.")
    ] = True,
) -> None:
    """Validate a spec and show what it would do, without training on any row."""
    from sweeper.planning.sources import check_sources
    from sweeper.specification.spec import Spec

    read = Spec.from_yaml(spec, read_values(values))
    check_sources(read, data_dir)  # before the imports of what reads data and plans, which take seconds
    from sweeper.cli.check_tables import render_check
    from sweeper.cli.tables import print_view
    from sweeper.planning.check import check_spec
    from sweeper.planning.estimate import in_words

    found = check_spec(read, data_dir, configurations=configurations or 1, measure=measure)
    details = details or configurations is not None
    print_view(render_check(found.plan, found.data, found.previews, found.unchecked, details=details))
    refused = False
    if found.plan.account is not None:
        from sweeper.account.account import Account
        from sweeper.account.owner import user_of_machine
        from sweeper.planning.account_fit import find_fit
        from sweeper.planning.account_plan import make_reservation
        from sweeper.planning.account_quote import quote_of

        account, title = Account(found.plan.account.address), found.plan.name
        wanted = make_reservation(found.plan, found.data, account, sweep="", title=title, spender=user_of_machine())
        fit = find_fit(found.loaded, account, wanted)
        quote = quote_of(account, wanted, fit)
        typer.echo(f"\n{quote.in_words()}")
        refused = quote.refused is not None
    if found.estimate is not None:
        typer.echo(f"\n{in_words(found.estimate)}")
    changed = "".join(f" --set {shlex.quote(text)}" for text in values or ())
    where = "" if data_dir is None else f" --data-dir {data_dir}"
    if refused:
        raise typer.Exit(EXIT_REFUSED)
    typer.echo(f"\nthen: {program()} run {spec}{changed}{where}")
    if not details:
        typer.echo(f"more: {program()} check {spec}{changed}{where} --details")


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help="Of what.", **choices(SCHEMAS))] = SCHEMAS[0],
) -> None:
    """Print the JSON schema of a spec, for editors, of a privacy card, or of a record of the registry."""
    typer.echo(json.dumps(_schema(of), indent=2))


def _schema(of: str) -> dict[str, Any]:
    if of == "card":
        from sweeper.privacy.card.content import card_schema

        return card_schema()
    if of == "registry":
        from sweeper.papers.registry_record import registry_schema

        return registry_schema()
    if of != SCHEMAS[0]:
        remedy = did_you_mean(of, SCHEMAS) or "choose one of them"
        raise SweeperError(f"Expected a schema of {', '.join(SCHEMAS)}, got {of!r}; {remedy}")
    from sweeper.specification.spec import schema as spec_schema

    return spec_schema()
