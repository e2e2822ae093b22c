"""The commands ``sweeper federated``: keys, servers and parties of a federated evaluation."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="federated", help="Servers and parties of a federated evaluation, and their keys.", no_args_is_help=True
)

FederationFile = Annotated[Path, typer.Argument(help="The file that all who take part hold.", show_default=False)]
KeyFile = Annotated[Path, typer.Option("--key", help="File of its private key.", show_default=False)]


@app.command()
def key(
    file: Annotated[Path, typer.Argument(help="The file to write.", show_default=False)],
    signing: Annotated[
        bool,
        typer.Option("--signing", help="Print the public key of its signatures alone; the file may be there already."),
    ] = False,
) -> None:
    """Make a private key, and print its public ones: for the federation's file, and for who verifies its signatures."""
    from sweeper.federated.keys import make_key, read_key

    identity = read_key(file) if signing and file.exists() else make_key(file)
    if signing:
        typer.echo(identity.signing_public.hex())
        return
    typer.echo(f"for a federation's file: {identity.public.hex()}")
    typer.echo(f"for sweeper verify --key: {identity.signing_public.hex()}")


@app.command()
def serve(
    federation: FederationFile,
    name: Annotated[str, typer.Option(help="A server of the file.", show_default=False)],
    key: KeyFile,
) -> None:
    """Be a server of the federation until Ctrl-C."""
    from sweeper.service.settings import check_installed

    check_installed()
    from sweeper.federated.federation import read_federation
    from sweeper.federated.keys import read_key
    from sweeper.federated.serving import serve as serve_

    serve_(read_federation(federation), name, read_key(key), typer.echo)


@app.command()
def join(
    federation: FederationFile,
    model: Annotated[Path, typer.Argument(help="What sweeper pick wrote, or a sweep.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="Rows with labels.", show_default=False)],
    name: Annotated[str, typer.Option(help="A party of the file.", show_default=False)],
    key: KeyFile,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Refuse if more than this were spent under this key.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(help="The account of these rows, FILE#NAME; that of the party in the file by default."),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(help="Column of the blocks of that account; that of the party in the file by default."),
    ] = None,
) -> None:
    """Take part with one's own rows, which stay here."""
    from sweeper.federated.federation import read_federation
    from sweeper.federated.keys import ledger_of, read_key
    from sweeper.federated.party import take_part
    from sweeper.federated.payment import Payment
    from sweeper.rounding import round_up
    from sweeper.specification.addresses import parse_address

    whole, identity = read_federation(federation), read_key(key)
    party = whole.party(name)
    address, block = account or party.account, block or party.block
    charged = None if address is None else parse_address(address)
    payment = Payment(key=key, most=max_epsilon, account=charged, block=block)
    part = take_part(whole, name, identity, model, data, payment)
    spent = f"epsilon {round_up(part.spent)} spent in all ({ledger_of(key)})"
    kept = "no account adds it to what else reads these rows" if address is None else f"charged to {address}"
    typer.echo(f"{name}: {part.bits} bits sent and received; {spent}; {kept}")
