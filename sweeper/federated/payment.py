"""What a party spends before anything of its rows is sent: its ledger, and the account of its rows.

One row changes a few of the sums that are asked of the parties, by one each, and their noise is independent: a release
costs what so many small mechanisms cost. Key servers evaluate whatever thresholds the analyst asks for later, one alone
if need be; there each curve costs what one mechanism of its whole epsilon costs.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets import NewRows
from clipless.privacy.events import Relation
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS, check_block_names, digest_hashes, digest_ids, digest_labelled
from sweeper.account.cost import pure_cost
from sweeper.account.entries import Side
from sweeper.account.owner import user_of_machine
from sweeper.account.rules import Reservation
from sweeper.errors import AccountError
from sweeper.federated.federation import Federation
from sweeper.federated.keys import ledger_of, spend
from sweeper.specification.addresses import AccountAddress

RELEASE = "evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """How one party pays.

    Attributes:
        key: the party's file, beside which its ledger is.
        most: the largest sum of epsilons in that ledger, ``None`` for any.
        account: of its rows, ``None`` where nothing adds the evaluation to what else reads them.
        block: the column that cuts its rows into the blocks of that account, ``None`` where it has none.
    """

    key: Path
    most: float | None = None
    account: AccountAddress | None = None
    block: str | None = None

    def ask(
        self,
        federation: Federation,
        name: str,
        rows: NewRows,
        labels: NDArray[np.int64],
        blocks: NDArray[np.str_] | None = None,
        units: NDArray[np.int64] | None = None,
        ids: Tensor | None = None,
    ) -> "Paid":
        """Return what an evaluation takes, before anybody is told anything.

        Args:
            federation: what is released.
            name: of the party.
            rows: its n rows, with the hashes of those of a table.
            labels: their classes, (n,).
            blocks: their blocks, (n,), each of which is charged; ``None`` where they are not cut.
            units: the numbers of their privacy units, (n,); ``None`` where each row is one.
            ids: the hashes of the ids of these, uint8, (n, 16).

        Raises:
            AccountError: the account has no room for it, has blocks and the rows have none or the other way round, or
                its rows are not these.
            RecordError: there is no such account, or its store cannot be read.
        """
        if self.account is None:
            return Paid(self, federation, None, None)
        account = Account(self.account)
        encoded = rows.x if rows.raw is None else rows.raw
        wanted = Reservation(
            sweep=secrets.token_hex(16),
            title=f"evaluation of {name}",
            spender=user_of_machine(),
            unit=federation.unit or "row",
            relation=Relation(federation.relation),
            costs={Side.TEST: pure_cost(parts_of(federation))},
            split=None,  # its rows may be on any side
            blocks=_digest(account.key, encoded, labels, blocks, units),
            whole=() if blocks is None else (digest_labelled(account.key, encoded, labels, units),),
            table=None if rows.hashes is None else digest_hashes(account.key, rows.hashes),
            read={}
            if rows.hashes is None or blocks is None
            else _by_block(digest_hashes, account.key, rows.hashes, blocks),
            units={} if ids is None or blocks is None else _by_block(digest_ids, account.key, ids, blocks),
            cut=self.block,
            federation=federation.digest.hex(),
        )
        refused = account.refusal(wanted)
        if refused is not None:
            raise AccountError(refused)
        return Paid(self, federation, account, wanted)


@dataclass(frozen=True, slots=True)
class Paid:
    """An evaluation that there is room for.

    Guarantees:
        When ``pay`` has returned, the evaluation is on the disk of the ledger and of the account; when it raises,
        nothing of the rows may be sent. What the account refuses is not in the ledger.
    """

    _payment: Payment
    _federation: Federation
    account: Account | None
    wanted: Reservation | None

    def pay(self) -> float:
        """Enter the evaluation and return the sum of epsilons in the party's ledger.

        Raises:
            AccountError, SweeperError, RecordError: it could not be entered.
        """
        return spend(self._payment.key, self._federation, self._payment.most, self._charge_account)

    def _charge_account(self) -> None:
        if self.account is not None and self.wanted is not None:
            self.account.release(self.wanted, RELEASE, ledger_of(self._payment.key))


def _digest(
    key: bytes,
    x: Tensor,
    labels: NDArray[np.int64],
    blocks: NDArray[np.str_] | None,
    units: NDArray[np.int64] | None,
) -> dict[str, str]:
    """Return the digest of the rows of each block."""
    if blocks is None:
        return {ALL_ROWS: digest_labelled(key, x, labels, units)}
    names = [str(name) for name in np.unique(blocks)]
    check_block_names(names, "--block")
    rows = {name: np.flatnonzero(blocks == name) for name in names}
    return {
        name: digest_labelled(key, x[torch.from_numpy(own)], labels[own], None if units is None else units[own])
        for name, own in rows.items()
    }


def _by_block(
    digest: Callable[[bytes, Tensor], str], key: bytes, hashes: Tensor, blocks: NDArray[np.str_]
) -> dict[str, str]:
    return {str(name): digest(key, hashes[torch.from_numpy(blocks == name)]) for name in np.unique(blocks)}


def parts_of(federation: Federation) -> tuple[float, ...]:
    """Return the epsilon of each independent mechanism that one row meets in an evaluation."""
    if federation.protocol == "function-sharing":
        return tuple(release.query.epsilon for release in federation.releases)
    return tuple(epsilon for release in federation.releases for epsilon in release.query.pure_parts)
