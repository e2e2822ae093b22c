"""Routes that show accounts; what a spec would take of one is in the answer of ``check``.

An account is opened, raised, shared and closed by ``sweeper account`` where its store lies: no token permits that.
"""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Request

from sweeper.service.responses.accounts import AccountDetail, AccountList, AccountTerms, AccountVerdict, EntryPage
from sweeper.service.routes.dependencies import Dependencies, Offset, person

AccountId = Annotated[
    str, Path(max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of an account.")
]


def routes(parts: Dependencies) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1/accounts", tags=["read"])
    accounts, most = parts.accounts, parts.settings.limits.page
    few = min(100, most)
    Limit = Annotated[int, Query(ge=1, le=most, description="Rows of a page, at most.")]

    @router.get("")
    def list_accounts(request: Request) -> AccountList:
        """List the accounts of the data sets of this service."""
        states = [accounts.state(name, person(request)) for name in accounts.names]
        return AccountList(accounts=[AccountTerms.of(state) for state in states])

    @router.get("/{account}")
    def show_account(request: Request, account: AccountId) -> AccountDetail:
        """Say how an account stands: what is taken of each block, by whom and on what, and what the asker may take."""
        return AccountDetail.of_spender(accounts.state(account, person(request)), person(request))

    @router.get("/{account}/entries")
    def list_account_entries(account: AccountId, offset: Offset = 0, limit: Limit = few) -> EntryPage:
        """Return the entries of an account, newest first."""
        rows, total = accounts.entries(account, offset, limit)
        return EntryPage(entries=rows, total=total, offset=offset, limit=limit)

    @router.get("/{account}/verify")
    async def verify_account(account: AccountId) -> AccountVerdict:
        """Replay an account from its first entry, and compare it with the ledgers of the sweeps of the service."""
        found = await to_thread.run_sync(accounts.verify, account)
        return AccountVerdict.of(found)

    return router
