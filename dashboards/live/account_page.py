"""The pages of accounts: which data sets have one, how one stands, its entries, and whether it is as it was written."""

from collections.abc import Callable, Iterable, Sequence

from dashboards.live.view import View
from dashboards.pages._html import Child, Html, each, join, tag
from dashboards.pages._page import facts_list, scrolling_table, section, working_table
from dashboards.text import MISSING, number, when
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.listing import EntryRow
from sweeper.account.rules import count_in_words
from sweeper.account.summary import LARGEST_SIDE, AccountSummary, Room, SweepSummary, share_in_words
from sweeper.account.verify import Verification
from sweeper.rounding import number_of, round_down
from sweeper.service.accounts import AccountState

SHOWN_ENTRIES = 100
SHOWN_SWEEPS = 100
_LISTED = ("account", "data", "epsilon", "delta", "taken", "drawn", "left for you", "as epsilon", "sweeps")
_NUMERIC = {"epsilon", "delta", "taken", "drawn", "left", "left for you", "as epsilon", "sweeps", "may take"}
_NUMERIC |= {"reserved", "still held", "entry", "share"}
_KINDS = {"bound": "bound to its rows"}
_DRAWS = "charged"
_GIVES = "settled"  # the kind of entry by which a share comes back


def account_list(states: Sequence[AccountState]) -> Html:
    """The list of accounts."""
    title = tag("header", tag("h1", "Accounts"))
    if not states:
        words = "No data set has an account here. Open one with sweeper account open, and serve with --account."
        return join([title, tag("p", words, class_="none")])
    words = (
        "An account is one budget for everything that is ever released from a data set. As epsilon: of one Gaussian "
        "signal that takes what is left for you. A sweep of that price takes more."
    )
    table = working_table("accounts", _heads(_LISTED), map(_listed, states), cards="titles")
    return join([title, tag("section", tag("p", words), table, class_="list")])


def account_head(state: AccountState, spender: str, is_here: Callable[[str], bool]) -> Html:
    """How one account stands: its claim, what is left, of which block, by whom and on what.

    ``is_here`` says which sweeps have a page here.
    """
    summary = state.summary
    back = tag("a", "Accounts", href=f"/{View(accounts=True).query()}", data_local=True)
    closed = [tag("p", f"{_of(block, 'Closed')}: {why}") for block, why in summary.closed.items()]
    ends = tag("p", f"No sweep begins after {summary.until}.") if summary.until else None
    banner = tag("div", *closed, class_="banner", role="note") if closed else None
    head = tag(
        "header",
        tag("p", back, class_="eyebrow"),
        tag("h1", f"Account {summary.name}"),
        tag("p", summary.claim),
        ends,
        banner,
        facts_list(_facts(state, spender)),
        tag("p", "Shares are of squared signal, which adds up; epsilons do not.", class_="test"),
    )
    return join([head, _places(summary), _spenders(summary), _sweeps(summary, is_here)])


def entry_table(account: str, rows: Sequence[EntryRow], total: int, behind: int) -> Html:
    """A page of the entries, newest first, with links to those before and after."""
    heads = ("entry", "when", "kind", "who", "sweep", "what", "share")
    links = []
    if behind > 0:
        links.append(_page_link(account, max(behind - SHOWN_ENTRIES, 0), "Newer entries"))
    if behind + len(rows) < total:
        links.append(_page_link(account, behind + SHOWN_ENTRIES, "Older entries"))
    words = (
        f"{len(rows)} of {number_of(total, 'entry', 'entries')}, newest first; each has the hash of the one before it."
    )
    if any(row.kind == _DRAWS for row in rows):
        words += " What was charged is a release: t0001/1 is the first attempt at trial t0001."
    table = working_table("entries", _heads(heads), map(_entry, rows), cards="titles")
    nav = tag("nav", *links, class_="links", aria_label="Pages of entries") if links else None
    return section("entries", "Entries", tag("p", words), table, nav)


def verdict(found: Verification) -> Html:
    """Whether an account is as it was written, and agrees with the ledgers of the sweeps here."""
    if not found.findings:
        ledgers = number_of(found.folders, "ledger")
        words = f"Verified: {number_of(found.entries, 'entry', 'entries')}, {ledgers} of sweeps of this service."
        held = f" Not settled yet: {', '.join(found.unsettled)}." if found.unsettled else ""
        return section("verdict", "Verification", tag("p", words + held))
    words = "Not as it was written. Do not start further sweeps before its owner has looked at it."
    listed = tag("ul", each("li", found.findings))
    banner = tag("div", tag("p", words), listed, class_="banner", role="alert")
    return section("verdict", "Verification", banner)


def _facts(state: AccountState, spender: str) -> dict[str, tuple[str, str | None]]:
    summary, room = state.summary, state.room
    left = share_in_words(room.left, up=False)
    like = None
    if summary.sweeps and state.like_last is not None:
        last = summary.sweeps[-1]
        reserved = f"{last.title}, the last one, which reserved {share_in_words(last.reserved)}"
        like = count_in_words(state.like_last, reserved)
    drawn = "all of it drawn" if summary.drawn >= summary.taken else f"{share_in_words(summary.drawn)} of it drawn"
    return {
        "Taken": (
            share_in_words(summary.taken),
            f"{drawn}, the rest reserved" if summary.drawn < summary.taken else drawn,
        ),
        f"Left for {spender}" if spender else "Left": (left, like),
        "Left as epsilon": (
            _as_epsilon(room),
            "of one Gaussian signal; a sweep of that price takes more: sweeper check says what fits of its spec",
        ),
        "Budget": (f"epsilon {number(summary.epsilon)}", f"at delta {summary.delta!r}, unit {summary.unit}"),
        "Data": (", ".join(state.data) or MISSING, "what reads its private rows is charged here"),
    }


def _listed(state: AccountState) -> Html:
    summary, room = state.summary, state.room
    link = tag("a", summary.name, href=f"/{View(account=summary.name).query()}", data_local=True, data_row=True)
    closed = tag("small", " closed") if ALL_ROWS in summary.closed else None
    return tag(
        "tr",
        tag("td", link, closed, data_value=summary.name),
        tag("td", ", ".join(state.data)),
        _number(summary.epsilon, number(summary.epsilon)),
        _number(summary.delta, number(summary.delta)),
        _number(summary.taken, share_in_words(summary.taken)),
        _number(summary.drawn, share_in_words(summary.drawn)),
        _number(room.left, share_in_words(room.left, up=False)),
        _number(room.epsilon, _as_epsilon(room)),
        _number(len(summary.sweeps), str(len(summary.sweeps))),
    )


def _places(summary: AccountSummary) -> Html | None:
    if not summary.places:
        return section("blocks", "What is left", tag("p", "All of it: nothing was reserved yet."))
    blocks = {place.block for place in summary.places} != {ALL_ROWS}
    rows = [
        _row(
            *([place.block] if blocks else []),
            place.side,
            taken=share_in_words(place.taken),
            drawn=share_in_words(place.drawn),
            left=share_in_words(1 - place.taken, up=False),
        )
        for place in summary.places
    ]
    heads = join(_plain_heads(*(["block"] if blocks else []), "rows", "taken", "drawn", "left"))
    where = (
        "side of every block has the whole budget: a row is on one side of one block"
        if blocks
        else ("side of the split has the whole budget: a row is on one side")
    )
    words = f"Every {where}. Taken: reserved or drawn. What was drawn never comes back."
    return section("blocks", "What is left", tag("p", words), scrolling_table(heads, rows))


def _spenders(summary: AccountSummary) -> Html | None:
    if not summary.spenders:
        return None
    rows = [_row(one.name, taken=share_in_words(one.taken), may=share_in_words(one.most)) for one in summary.spenders]
    return section(
        "spenders", "Who has taken it", scrolling_table(join(_plain_heads("spender", "taken", "may take")), rows)
    )


def _sweeps(summary: AccountSummary, is_here: Callable[[str], bool]) -> Html | None:
    if not summary.sweeps:
        return None
    shown = tuple(reversed(summary.sweeps[-SHOWN_SWEEPS:]))
    cut = f"The newest {len(shown)} of {len(summary.sweeps)} sweeps." if len(shown) < len(summary.sweeps) else None
    heads = _heads(("sweep", "who", "since", "reserved", "drawn", "still held"))
    rows = (_sweep(one, linked=is_here(one.title)) for one in shown)
    table = working_table("account-sweeps", heads, rows, cards="titles")
    words = (
        "Reserved: before anything was drawn. What a sweep has not drawn when it ends is given back. "
        f"{LARGEST_SIDE.capitalize()}."
    )
    return section("spent", "What it was taken for", tag("p", " ".join(filter(None, [words, cut]))), table)


def _sweep(one: SweepSummary, *, linked: bool) -> Html:
    link = tag("a", one.title, href=f"/{View(sweep=one.title).query()}", data_local=True) if linked else one.title
    held = max(one.taken - one.drawn, 0.0)
    return tag(
        "tr",
        tag("td", link, data_value=one.title),
        tag("td", one.spender),
        tag("td", when(one.since), data_value=one.since),
        _number(one.reserved, share_in_words(one.reserved)),
        _number(one.drawn, share_in_words(one.drawn)),
        _number(*((None, MISSING) if one.is_settled else (held, share_in_words(held)))),
    )


def _entry(row: EntryRow) -> Html:
    sign = "" if row.part is None else "\N{MINUS SIGN}" if row.kind == _GIVES and row.part else ""
    return tag(
        "tr",
        _number(row.number, str(row.number)),
        tag("td", when(row.at), data_value=row.at),
        tag("td", _KINDS.get(row.kind, row.kind)),
        tag("td", row.by or MISSING, data_value=row.by),
        tag("td", row.sweep or MISSING, data_value=row.sweep),
        tag("td", row.detail or MISSING, data_value=row.detail),
        _number(row.part, MISSING if row.part is None else sign + share_in_words(row.part)),
    )


def _page_link(account: str, behind: int, words: str) -> Html:
    return tag("a", words, href=f"/{View(account=account, behind=behind).query()}", data_local=True)


def _of(block: str, word: str = "") -> str:
    name = "all rows" if block == ALL_ROWS else block
    return f"{word}, {name}" if word else name


def _as_epsilon(room: Room) -> str:
    return f"epsilon {round_down(room.epsilon, 3)}" if room.epsilon else "none"


def _number(value: float | None, text: str) -> Html:
    return tag("td", text, class_="number", data_value="" if value is None else value)


def _row(*texts: Child, **numbers: str) -> Html:
    return tag("tr", each("td", texts), each("td", numbers.values(), class_="number"))


def _heads(names: Iterable[str]) -> list[Html]:
    return [
        tag("th", tag("button", n, type="button"), scope="col", class_="number" if n in _NUMERIC else None, data_name=n)
        for n in names
    ]


def _plain_heads(*names: str) -> list[Html]:
    return [tag("th", name, scope="col", class_="number" if name in _NUMERIC else None) for name in names]
