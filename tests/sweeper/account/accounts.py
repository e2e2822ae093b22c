"""What tests of accounts say again and again."""

import datetime

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.entries import Side
from sweeper.account.owner import open_account
from sweeper.account.rules import Reservation

DAY = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
RELATION = Relation.ADD_OR_REMOVE_ONE
SPLIT = '{"name":"clinic","salt":"a","test":null,"validation":0.15}'
OTHER_SPLIT = SPLIT.replace('"a"', '"b"')
ONE = 0.721**2  # mu^2 of a training of MNIST at epsilon 3


def begin_quickly(connection, _record):
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = OFF")


def make(address, **changes):
    terms = {"unit": "row", "relation": RELATION, "epsilon": 6.8, "delta": 1e-5, "by": "owner", "at": DAY}
    open_account(address, **(terms | changes))
    return Account(address, clock=lambda: DAY)


def costs(square=ONE, slack=1e-8, side=Side.TRAINING):
    return {side: GaussianCost(square, slack)}


def wants(sweep, of=None, **changes):
    values = {
        "sweep": sweep,
        "title": sweep,
        "spender": "ann",
        "unit": "row",
        "relation": RELATION,
        "costs": costs() if of is None else of,
        "split": SPLIT,
        "blocks": {ALL_ROWS: "ab"},
    } | changes
    told = {"sides": dict.fromkeys(values["blocks"], "cd"), "has_public_rows": False} if values["split"] else {}
    return Reservation(**(told | values))


def write_rows(ledger, *rows):
    with ledger.open("a", encoding="utf-8") as file:
        file.writelines(f'{{"row": "{row}"}}\n' for row in rows)
