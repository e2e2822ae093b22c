"""The commands ``sweeper account``: open the account of a data set, show and verify it, raise, share and close it."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeper.cli.options import SweepFolder, choices
from sweeper.errors import SweeperError
from sweeper.rounding import exactly, number_of

if TYPE_CHECKING:
    from sweeper.account.entries import Share
    from sweeper.account.summary import AccountSummary
    from sweeper.specification.addresses import AccountAddress

EXIT_FOUND = 1
_NUMBERS = ("taken", "drawn", "left", "may take")
RELATIONS = ("add-or-remove-one", "replace-one")

app = typer.Typer(name="account", help="One budget for everything that ever reads a data set.", no_args_is_help=True)

Address = Annotated[
    str,
    typer.Argument(help="FILE#NAME, or postgresql://HOST/DATABASE#NAME.", metavar="ACCOUNT", show_default=False),
]
Epsilon = Annotated[float, typer.Option(help="Price of all that is ever released, at delta.")]
Delta = Annotated[float, typer.Option(help="The probability that the guarantee may fail with.")]
Shares = Annotated[
    list[str] | None,
    typer.Option(
        "--share",
        metavar="WHO=PART",
        help="The most that a spender takes, ann=0.5; a group, lab=0.5:ann,ben; *=0.25 for all others; repeatable.",
    ),
]
Because = Annotated[str, typer.Option(help="Why; it stays on record.", show_default=False)]


@app.command("open")
def open_(
    account: Address,
    epsilon: Epsilon,
    delta: Delta,
    unit: Annotated[str, typer.Option(help="The privacy unit: row, or the column that identifies it.")] = "row",
    relation: Annotated[str, typer.Option(help="Which data sets are neighbours.", **choices(RELATIONS))] = RELATIONS[0],
    share: Shares = None,
    until: Annotated[str | None, typer.Option(help="The last day on which a sweep may begin, YYYY-MM-DD.")] = None,
    salt: Annotated[str | None, typer.Option(help="Of the split by hash; that of the first sweep by default.")] = None,
    split_column: Annotated[str | None, typer.Option(help="Column that declares the split, instead of a salt.")] = None,
) -> None:
    """Open an account, in a new store or one that is there."""
    from clipless.privacy.events import Relation
    from clipless.spelling import did_you_mean
    from sweeper.account.owner import open_account

    if relation not in RELATIONS:
        near = did_you_mean(relation, RELATIONS, before="; ")
        raise SweeperError(f"Expected a relation out of {', '.join(RELATIONS)}, got {relation!r} (--relation){near}")
    address = _address(account)
    open_account(
        address,
        unit=unit,
        relation=Relation(relation),
        epsilon=epsilon,
        delta=delta,
        by=_user(),
        at=_now(),
        shares=_shares(share or []),
        until=None if until is None else _day(until),
        salt=salt,
        column=split_column,
    )
    typer.echo(f"opened: {address}\nin a spec: privacy: {{account: '{address}'}}")


@app.command()
def show(
    account: Address,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what was spent, by whom, on what, when, and what is left."""
    from sweeper.account.account import Account
    from sweeper.account.summary import summarise

    summary = summarise(Account(_address(account)).balance())
    if json_:
        from sweeper.adapters import dump
        from sweeper.store.jsonl import to_text

        typer.echo(to_text(dump(summary), indent=1))
        return
    from rich.console import Group

    from sweeper.cli.tables import print_view

    print_view(Group(*_tables(summary)))


@app.command()
def verify(
    account: Address,
    sweeps: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of sweeps, or of many sweeps, whose ledgers are compared.", show_default=False),
    ] = None,
) -> None:
    """Replay the chain of an account, and compare it with the ledgers of its sweeps."""
    from sweeper.account.verify import find_folders, verify_account

    found = verify_account(_address(account), find_folders(sweeps or []))
    for finding in found.findings:
        typer.echo(finding, err=True)
    if found.findings:
        raise typer.Exit(EXIT_FOUND)
    entries = "1 entry" if found.entries == 1 else f"{found.entries} entries"
    open_ = f"; not settled yet: {', '.join(found.unsettled)}" if found.unsettled else ""
    typer.echo(f"verified: {entries}, {number_of(found.folders, 'ledger')}{open_}")


@app.command()
def settle(
    sweep: SweepFolder,
    account: Annotated[
        str | None, typer.Option(metavar="ACCOUNT", help="Where the account is, if its store was moved.")
    ] = None,
) -> None:
    """Give back what a sweep has reserved and never drew, if it will not be resumed."""
    from sweeper.account.verify import settle_folder

    typer.echo(f"settled: {settle_folder(sweep, None if account is None else _address(account))}")


@app.command("raise")
def raise_(account: Address, epsilon: Epsilon, delta: Delta, because: Because) -> None:
    """Raise the budget of an account, a new statement to the people in the data that stays on record."""
    from sweeper.account.owner import raise_account

    raise_account(_address(account), epsilon, delta, because=because, by=_user(), at=_now())
    typer.echo(f"raised: epsilon {exactly(epsilon)} at delta {delta!r}")


@app.command()
def share(
    account: Address,
    shares: Annotated[
        list[str], typer.Argument(help="WHO=PART, as --share of open; in place of those before.", show_default=False)
    ],
) -> None:
    """Give spenders and groups their shares of an account."""
    from sweeper.account.owner import give_shares

    give_shares(_address(account), _shares(shares), by=_user(), at=_now())
    typer.echo(f"shared: {', '.join(shares)}")


@app.command()
def close(
    account: Address,
    because: Because,
    block: Annotated[str | None, typer.Option(help="Close this block alone.", show_default=False)] = None,
) -> None:
    """Close an account, or one of its blocks: no sweep begins any more, those that have begun go on."""
    from sweeper.account.owner import close_account

    close_account(_address(account), block=block, because=because, by=_user(), at=_now())
    typer.echo(f"closed: {account}" + (f", block {block}" if block else ""))


def _address(text: str) -> "AccountAddress":
    from sweeper.specification.addresses import parse_address

    return parse_address(text)


def _user() -> str:
    from sweeper.account.owner import user_of_machine

    return user_of_machine()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise SweeperError(f"Expected a day as YYYY-MM-DD, got {text!r} (--until)") from None


def _shares(texts: list[str]) -> "list[Share]":
    from sweeper.account.entries import Share

    found = []
    for text in texts:
        name, sign, value = text.partition("=")
        part, _, members = value.partition(":")
        try:
            number = float(part) if sign else -1.0
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 1.0:
            raise SweeperError(f"Expected WHO=PART with a part from 0 to 1, such as ann=0.5, got {text!r} (--share)")
        found.append(Share(name=name, part=number, members=tuple(members.split(",")) if members else ()))
    return found


def _tables(summary: "AccountSummary") -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    from sweeper.account.summary import LARGEST_SIDE, share_in_words

    shown: list[Any] = [Text(summary.claim)]
    shown += [Text(f"No sweep begins after {summary.until}.")] if summary.until else []
    shown += [Text(f"Closed, {block}: {why}", style="bold") for block, why in summary.closed.items()]
    places = _table("What is left", "block", "rows", "taken", "drawn", "left")
    for place in summary.places:
        row = (share_in_words(place.taken), share_in_words(place.drawn), share_in_words(1 - place.taken, up=False))
        places.add_row(place.block, place.side, *row)
    spenders = _table("By whom", "spender", "taken", "may take")
    for spender in summary.spenders:
        spenders.add_row(spender.name, share_in_words(spender.taken), share_in_words(spender.most))
    tables: list[Table] = [table for table in (places, spenders) if table.row_count]
    heading = Text.assemble(("On what", "italic"), f" ({LARGEST_SIDE})")
    sweeps = [heading] if summary.sweeps else []  # no table: names and times need the width
    for sweep in summary.sweeps:
        reserved, taken, drawn = map(share_in_words, (sweep.reserved, sweep.taken, sweep.drawn))
        ended = "settled" if sweep.is_settled else "not settled"
        sweeps.append(Text(f" {sweep.title} by {sweep.spender}, since {sweep.since}"))
        sweeps.append(
            Text(f"   reserved {reserved}, drawn {drawn}, holds {taken} of {', '.join(sweep.blocks)}; {ended}")
        )
    return [*shown, *tables, *sweeps] if tables or sweeps else [*shown, Text("Nothing was reserved from it yet.")]


def _table(title: str, *columns: str) -> Any:
    from rich.table import Table

    table = Table(title=title, box=None, title_justify="left")
    for column in columns:
        is_number = column in _NUMBERS
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table
