"""What a browser shows, as its address says it: sweep, tab, filters. Addresses are shared, so they are not trusted.

An unknown or invalid part of an address is ignored.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from sweeper.records import PointKey

PREFIX = "/live/"
MOST_COMPARED = 12
MOST_DIGITS = 10
_MOST_FIELDS = 64
_LARGEST = 1e12  # number that an address may say
_POINT = re.compile(
    r"(.+?)\.([0-9]{1,9})(?:\.([a-z][a-z0-9-]{0,49}))?", re.DOTALL
)  # trial, epoch, what it was made from


class Action(enum.Enum):
    """What a page offers those who may write; the value is what addresses have."""

    SUBMIT = "submit"
    STOP = "stop"
    STOP_TRIAL = "stop-trial"
    RESUME = "resume"
    EXTEND = "extend"
    ENQUEUE = "enqueue"
    STEER = "steer"
    NOTE = "note"
    TAG = "tag"
    DELETE = "delete"
    SIGN_OUT = "sign-out"


class Tab(enum.Enum):
    """Which part of a sweep is shown; the value is what addresses have."""

    FRONT = "front"
    ROBUSTNESS = "robustness"
    TRIALS = "trials"
    SEARCH = "search"
    PRICE = "price"
    EXPORT = "export"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown."""

    sweep: str = ""  # folder name of the sweep; without one, the list of sweeps or a comparison
    tab: Tab = Tab.FRONT  # which part of it
    solid: bool = False  # whether the front is drawn in three dimensions
    # name of the certificate, ``certified@R``, that the front is drawn for; the utility itself if empty
    radius: str = ""
    linear: bool = False  # whether epsilon has a linear axis
    max_epsilon: float | None = None  # largest epsilon of the point to pick
    minimum: Mapping[str, float] = field(default_factory=dict)  # smallest values of the point to pick, by objective
    point: PointKey | None = None  # key of a point that was chosen by hand
    compared: tuple[str, ...] = ()  # folder names of sweeps to compare
    anyway: bool = False  # whether to compare what is not comparable
    trial: str = ""  # id of the trial whose page is shown
    action: Action | None = None  # what is about to be done, and waits to be confirmed
    accounts: bool = False  # whether it is the list of accounts
    account: str = ""  # name of the account that is shown
    behind: int = 0  # how many of its newest entries are left out
    # trials beyond those of the sweep, whose price the form of an extension says; 0 for the usual ones
    further: int = 0

    @classmethod
    def parse(cls, query: str) -> "View":
        """Return the view of an address, from what stands behind its question mark.

        >>> View.parse("?sweep=digits&tab=trials&max-epsilon=3").max_epsilon
        3.0
        >>> View.parse("tab=nonsense&max-epsilon=nan") == View()
        True
        """
        try:
            pairs = parse_qsl(query.removeprefix("?"), max_num_fields=_MOST_FIELDS)
        except ValueError:
            return cls()
        said = dict(pairs)
        tab = said.get("tab", "")
        return cls(
            sweep=said.get("sweep", ""),
            tab=Tab(tab) if tab in {known.value for known in Tab} else Tab.FRONT,
            solid=said.get("view") == "3d",
            radius=said.get("radius", ""),
            linear=said.get("axis") == "linear",
            max_epsilon=_number(said.get("max-epsilon", "")),
            minimum=_minimum([value for key, value in pairs if key == "min"]),
            point=_point(said.get("point", "")),
            compared=tuple(dict.fromkeys(value for key, value in pairs if key == "compare"))[:MOST_COMPARED],
            anyway=said.get("anyway") == "1",
            trial=said.get("trial", ""),
            accounts=said.get("accounts") == "1",
            account=said.get("account", ""),
            behind=_count(said.get("behind", "")),
            further=_count(said.get("further", "")),
            action=Action(action) if (action := said.get("do", "")) in {known.value for known in Action} else None,
        )

    def query(self) -> str:
        """Return the address of the view: what `parse` reads, with a question mark before it unless it is empty."""
        pairs = [("sweep", self.sweep)] if self.sweep else []
        pairs += [("tab", self.tab.value)] if self.tab is not Tab.FRONT else []
        pairs += [("view", "3d")] if self.solid else []
        pairs += [("radius", self.radius)] if self.radius else []
        pairs += [("axis", "linear")] if self.linear else []
        pairs += [("max-epsilon", f"{self.max_epsilon:.6g}")] if self.max_epsilon is not None else []
        pairs += [("min", f"{name}={value:.6g}") for name, value in self.minimum.items()]
        pairs += [("point", ".".join(map(str, filter(None, self.point))))] if self.point else []
        pairs += [("compare", name) for name in self.compared]
        pairs += [("anyway", "1")] if self.anyway else []
        pairs += [("trial", self.trial)] if self.trial else []
        pairs += [("accounts", "1")] if self.accounts else []
        pairs += [("account", self.account)] if self.account else []
        pairs += [("behind", str(self.behind))] if self.behind else []
        pairs += [("further", str(self.further))] if self.further else []
        pairs += [("do", self.action.value)] if self.action else []
        return f"?{urlencode(pairs)}" if pairs else ""

    @property
    def compares(self) -> bool:
        """Whether this is a comparison of sweeps."""
        return bool(self.compared) and not self.sweep


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < MOST_DIGITS else 0


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= _LARGEST else None


def _minimum(said: list[str]) -> dict[str, float]:
    pairs = [text.rpartition("=") for text in said]
    return {name: value for name, _, number in pairs if name and (value := _number(number)) is not None}


def _point(text: str) -> PointKey | None:
    found = _POINT.fullmatch(text)
    return (found[1], int(found[2]), found[3] or "") if found else None
