"""Sweeps of a service as objects: submit, watch, pick and steer them as those of this machine.

service = sweeper.connect("https://sweeper.example.org")
sweep = service.submit("sweep.yaml").wait()
sweep.pick(max_epsilon=3).write(Path("picked"))
"""

import io
import json
import math
import os
import tempfile
import textwrap
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.account.summary import share_in_words
from sweeper.adapters import read
from sweeper.calls import called_by_users
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import PickError, RecordError, SpecError, SweeperError
from sweeper.markup import WIDTH, paragraph
from sweeper.papers.files import CARD_NAME, MODEL_NAME, PAPERS, clear_for_model
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.card.make import Card
from sweeper.privacy.pricing import Price, value_name
from sweeper.records import ConfigValues, SweepStatus
from sweeper.results.display import and_price, front_in_html, front_in_words, lines_in_html
from sweeper.results.front import Front, parse_front
from sweeper.results.front_record import frame_of
from sweeper.results.highlights import score_lines
from sweeper.results.pick import CONDITIONS
from sweeper.rounding import in_brackets, round_down, round_up
from sweeper.service.client import PAUSE_SECONDS, YAML, Call, Connection
from sweeper.specification.addresses import check_url
from sweeper.specification.fields.nested import flatten
from sweeper.store.jsonl import to_text

if TYPE_CHECKING:
    import pandas as pd

    from clipless import Network
    from sweeper.planning.sources import AnySpec

TOKEN = "SWEEPER_TOKEN"
_COLUMNS = ("id", "name", "state", "status", "reason", "submitted", "by")  # of the list, where it has no rows
_PAGE = 200  # sweeps of one page of the list
_SAME_VERSION = "use the version of Sweeper that the service has"
_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}  # as the answers of a service have them


@dataclass(frozen=True, repr=False)
class RemotePicked:
    """One point of a sweep of a service, with what travels with it.

    Attributes:
        trial, epoch, made_from: which model.
        values: by objective, on validation rows.
        scores: a sentence each, on test rows where it has them.
        config: of its trial.
        card: its privacy card.
    """

    trial: str
    epoch: int
    made_from: str
    values: Mapping[str, float]
    scores: Sequence[str]
    config: ConfigValues
    card: Card
    _address: str
    _papers: Call
    _connection: Connection

    def __repr__(self) -> str:
        """Return what a terminal shows: the point, its price, and its configuration."""
        return "\n".join(textwrap.fill(line, WIDTH) for line in self._lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise; ``card`` shows itself."""
        return lines_in_html(self._lines())

    @called_by_users()
    def model(self) -> "Network":
        """Download the model and load it.

        Raises:
            UnknownSweepError: it has left the front since.
            SweeperError: the service cannot be reached.
            clipless.errors.ModelFileError: what came cannot be read.
        """
        import clipless

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            path.write_bytes(self._download())
            return clipless.load(path)

    @called_by_users()
    def write(self, folder: str | Path) -> None:
        """Write the folder that ``sweeper pick`` writes: model, card, hashes, ledger and spec, the card last.

        Raises:
            RecordError: not written, or the conditions pick another point by now.
            SweeperError: as `model`.
        """
        content, path = self._connection.ask(self._papers), Path(folder)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                files = {Path(name).name: archive.read(name) for name in archive.namelist()}
            if others := set(files) - {MODEL_NAME, *PAPERS}:
                raise ValueError(others)
            card, model = json.loads(files[CARD_NAME]), files.pop(MODEL_NAME)
            found = (card["trial"], card["epoch"], card["made_from"])
        except (zipfile.BadZipFile, KeyError, ValueError):
            raise SweeperError("Expected the papers of a model from the service, got something else (url)") from None
        if found != (self.trial, self.epoch, self.made_from):
            raise RecordError(f"Expected the papers of {self.trial}, epoch {self.epoch}, but another point is the best")
        try:
            clear_for_model(path)
            (path / MODEL_NAME).write_bytes(model)  # first: it is what the folder is known by
            for name, data in sorted(files.items(), key=lambda item: item[0] == CARD_NAME):
                (path / name).write_bytes(data)
        except OSError as error:
            raise RecordError(f"Cannot write {path}: {error.strerror or error}; choose another folder") from error

    def _download(self) -> bytes:
        return self._connection.ask(Call(self._address.removeprefix("/api/v1"), "the model"))

    def _lines(self) -> list[str]:
        winner = self.card.content.winner
        cost = and_price(None if winner is None else winner.to_price())
        moment = ", ".join(map(str, filter(None, (self.epoch, self.made_from))))
        settings = ", ".join(f"{name} {value}" for name, value in flatten(self.config).items())
        own = f"{value_name('epsilon')} {round_up(self.values['epsilon'])}"
        return [f"{self.trial}, epoch {moment}: {own}{cost}", *self.scores, settings]


class RemoteSweep:
    """A sweep of a service; has what a `sweeper.Sweep` has, and what a service does for it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self.id = connection, name

    @property
    def page(self) -> str:
        """The address of its live page."""
        return f"{self._connection.url.rstrip('/')}/?sweep={self.id}"

    @property
    def state(self) -> SweepStatus:
        """How it stands."""
        return SweepStatus(self.status()["state"])

    @property
    @called_by_users()
    def trials(self) -> "pd.DataFrame":
        """The trials as a table; see `sweeper.Sweep.trials`."""
        rows = self._read("/trials")["trials"]
        return frame_of([{name: _NUMBERS.get(cell, cell) for name, cell in row.items()} for row in rows])

    @property
    @called_by_users()
    def points(self) -> "pd.DataFrame":
        """Every point as a table; see `sweeper.Front.to_dataframe`."""
        import pandas as pd

        text = self._connection.ask(self._call("/points", query={"format": "csv"})).decode()
        return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])

    @property
    @called_by_users()
    def price(self) -> Price | None:
        """What any of its models costs; see `sweeper.Sweep.price`."""
        return self.front().price

    def status(self) -> dict[str, Any]:
        """Return how it stands: its state, its spec and its front in numbers, as the service says it.

        Raises:
            UnknownSweepError: there is no such sweep.
            SweeperError: the service cannot be reached, or refuses the token.
        """
        return self._read("")

    @called_by_users()
    def front(self) -> Front:
        """Return the front, with the points on it and their trials.

        Raises:
            UnknownSweepError: there is none yet.
        """
        return parse_front(self._read("/front"), f"the answer of {self._connection}")

    @called_by_users(CONDITIONS)
    def pick(
        self,
        max_epsilon: float | None = None,
        minimum: Mapping[str, float] | None = None,
        *,
        max_price: float | None = None,
    ) -> RemotePicked:
        """Return the point of best utility within the conditions; see `sweeper.Sweep.pick`.

        Raises:
            PickError: no point meets the conditions.
            RecordError: its card is one of another version.
        """
        floors = [f"{name}={value!r}" for name, value in (minimum or {}).items()]
        query = {"max_epsilon": max_epsilon, "max_price": max_price, "min": floors or None}
        found = self._read("/pick", "these conditions", query=query, refused=PickError)
        front, key = self.front(), (found["trial"], found["epoch"], found["made_from"])
        point = next((one for one in front.points if one.key == key), None)  # None: it has left the front since
        return RemotePicked(
            trial=found["trial"],
            epoch=found["epoch"],
            made_from=found["made_from"],
            values={name: float(value) for name, value in found["values"].items()},
            scores=() if point is None else score_lines(point, front),
            config=found["config"],
            card=Card(read(CardContent, found["card"], f"of the answer of {self._connection}", _SAME_VERSION, "card")),
            _address=found["model"],
            _papers=Call(self._path("/papers"), "these conditions", query=query, refused=PickError),
            _connection=self._connection,
        )

    @called_by_users()
    def stop(self, trial: str | None = None) -> None:
        """Stop it, or one of its trials after the epoch that it is in.

        Raises:
            RecordError: it does not run, or no such trial does.
        """
        self._change("/stop" if trial is None else f"/trials/{trial}/stop")

    @called_by_users()
    def resume(self) -> "RemoteSweep":
        """Resume it after it was stopped, interrupted or has failed, and return it."""
        self._change("/resume")
        return self

    @called_by_users()
    def extend(self, trials: int) -> "RemoteSweep":
        """Run it on until it has so many trials in all, and return it."""
        self._change("/extend", {"trials": trials})
        return self

    @called_by_users()
    def enqueue(self, configuration: Mapping[str, object]) -> dict[str, Any]:
        """Enqueue a configuration as the next trial and return its values; see `sweeper.enqueue`.

        Raises:
            SpecError: not values of its open hyperparameters.
        """
        values: dict[str, Any] = self._change("/enqueue", {"values": dict(configuration)})["values"]
        return values

    @called_by_users()
    def steer(self, *bounds: str) -> tuple[str, ...]:
        """Steer its search to a region of the front; see `sweeper.steer`.

        Raises:
            SpecError: not bounds on its objectives, or a search that nothing steers.
        """
        return tuple(self._change("/steer", {"region": list(bounds)})["region"])

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield what happens, from the first point to the end of the sweep: the kind of each event, and its content.

        Kinds are ``point``, ``trial``, ``status`` and ``end``. A connection that breaks is opened again behind the
        last event.
        """
        after: str | None = None
        while True:
            for kind, last, data in self._connection.stream(self._path("/events"), after):
                yield kind, json.loads(data)
                if kind == "end":
                    return
                after = last
            time.sleep(PAUSE_SECONDS)

    @called_by_users()
    def wait(self, *, progress: bool | None = None) -> "RemoteSweep":
        """Wait until it has ended, and return it; ``progress`` is as for `sweeper.run`."""
        from sweeper.driver.api import with_display  # takes seconds to import, and few calls wait
        from sweeper.driver.options import Options

        with with_display(Options(), progress) as shown:
            for kind, content in self.events():
                if kind in ("status", "end"):
                    shown.show(SweepProgress(name=self.id, total=0, note=_in_words(content)))
        return self

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        head, front = self._look()
        return f"{head}\n{front_in_words(front) if isinstance(front, Front) else front}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        head, front = self._look()
        return paragraph(head) + (front_in_html(front) if isinstance(front, Front) else paragraph(front))

    def _look(self) -> tuple[str, Front | str]:
        """Return how it stands with its page, and its front or why there is none."""
        try:
            status = self.status()
            head = f"{' '.join(filter(None, [status['state'], status.get('reason')]))}, {self.page}"
            if not status.get("front"):
                return head, "no front yet: it has one when a trial has finished its first epoch"
            return head, self.front()
        except SweeperError as error:
            return self.page, str(error)

    def _path(self, path: str) -> str:
        return f"/sweeps/{self.id}{path}"

    def _call(self, path: str, what: str = "this", **more: Any) -> Call:
        return Call(self._path(path), what, **more)

    def _read(self, path: str, what: str = "this", **more: Any) -> dict[str, Any]:
        return self._connection.read(self._call(path, what, **more))

    def _change(self, path: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = b"" if content is None else to_text(content).encode()
        return self._read(path, "it", method="POST", data=data, refused=SpecError)


class RemoteAccount:
    """The account of data sets of a service."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self.name = connection, name

    @property
    def entries(self) -> "pd.DataFrame":
        """Its entries as a table, newest first: who, what, when, and the share of the budget."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        while True:
            page = self._read("/entries", query={"offset": len(rows), "limit": _PAGE})
            rows += page["entries"]
            if not page["entries"] or len(rows) >= page["total"]:
                return pd.DataFrame.from_records(rows)

    def status(self) -> dict[str, Any]:
        """Return how it stands: its claim, its blocks, spenders and sweeps, and in ``room`` what you may still take.

        Raises:
            SweeperError: there is no such account, or the service cannot be reached.
        """
        return self._read("")

    def verify(self) -> dict[str, Any]:
        """Return whether it is as it was written (``verified``), and what is not (``findings``)."""
        return self._read("/verify")

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return "\n".join(textwrap.fill(line, WIDTH) for line in self._lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return "".join(map(paragraph, self._lines()))

    def _lines(self) -> list[str]:
        status = self.status()
        room, spent = status["room"], share_in_words(float(status["taken"]))
        left = share_in_words(float(room["left"]), up=False)
        epsilon = round_down(float(room["epsilon"]), 3)
        return [
            status["claim"],
            f"{spent} of its budget is taken, {left} is left for {room['spender']}, a Gaussian signal of epsilon "
            f"{epsilon}; check says which sweep_epsilon of a spec fits",
        ]

    def _read(self, path: str, **more: Any) -> dict[str, Any]:
        return self._connection.read(Call(f"/accounts/{self.name}{path}", **more))


class Service:
    """A service of sweeps; made by `connect`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @called_by_users()
    def submit(self, spec: "AnySpec") -> RemoteSweep:
        """Submit a spec and return its sweep.

        Args:
            spec: as for `sweeper.run`; files that it names are those of the service.

        Raises:
            SpecError: the service refuses the spec.
            AccountError: the account of its data has no room for it; the message has the price and what would fit.
            SweeperError: it cannot be reached, or refuses the token.

        Guarantees:
            However often the connection breaks, one sweep is submitted.
        """
        call = Call("/sweeps", "the spec", "POST", _text(spec), YAML, refused=SpecError, key=uuid.uuid4().hex)
        return RemoteSweep(self._connection, str(self._connection.read(call)["id"]))

    @called_by_users()
    def check(self, spec: "AnySpec") -> dict[str, Any]:
        """Check a spec as submitting it would, and return its name, its number of trials and what it costs.

        ``price`` says the price in words; ``epsilon`` is its number, ``None`` where nothing fixes it before the sweep
        begins (``privacy.sweep_epsilon`` does), and ``delta`` its delta, ``None`` where the spec leaves it to its data.
        Where its data have an account, ``account`` says what the sweep would take of it, what would be left and what
        would fit; a sweep that does not fit has the reason in ``refused`` there.

        Raises: as `submit`.
        """
        return self._connection.read(Call("/check", "the spec", "POST", _text(spec), YAML, refused=SpecError))

    @called_by_users()
    def sweep(self, name: str) -> RemoteSweep:
        """Return a sweep by its id.

        Raises:
            UnknownSweepError: there is none.
        """
        found = RemoteSweep(self._connection, name)
        found.status()
        return found

    @called_by_users()
    def account(self, name: str) -> RemoteAccount:
        """Return an account by its name.

        Raises:
            SweeperError: there is none.
        """
        found = RemoteAccount(self._connection, name)
        found.status()
        return found

    @property
    @called_by_users()
    def accounts(self) -> "pd.DataFrame":
        """The accounts as a table: what each promises, and how much of it is taken and drawn."""
        import pandas as pd

        return pd.DataFrame.from_records(self._connection.read(Call("/accounts"))["accounts"])

    @property
    @called_by_users()
    def sweeps(self) -> "pd.DataFrame":
        """The sweeps as a table, newest first: id, name, state and when they were submitted."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        while True:
            page = self._connection.read(Call("/sweeps", query={"offset": len(rows), "limit": _PAGE}))
            rows += page["sweeps"]
            if not page["sweeps"] or len(rows) >= page["total"]:
                break
        frame = pd.DataFrame.from_records(rows, columns=None if rows else list(_COLUMNS))
        frame["submitted"] = pd.to_datetime(frame["submitted"], unit="s", utc=True)
        return frame

    def __repr__(self) -> str:
        """Return the address; the token is no text to be shown."""
        return f"the service at {self._connection}"


@called_by_users()
def connect(url: str = "http://127.0.0.1:8000", token: str | None = None) -> Service:
    """Connect to a service.

    Args:
        url: its address; one of https checks the certificate of the service.
        token: as ``sweeper token`` printed it; by default that of the environment, ``SWEEPER_TOKEN``.

    Raises:
        SweeperError: no address of a service, or the service cannot be reached or refuses the token.
    """
    address = check_url(url, "the address of a service", "url")
    connection = Connection(address, token or os.environ.get(TOKEN) or None, "url")
    connection.read(Call("/sweeps", query={"limit": 1}))
    return Service(connection)


def _in_words(status: Mapping[str, Any]) -> str:
    """Return how a sweep stands, as its service tells it."""
    front, state = status.get("front"), " ".join(filter(None, [status["state"], status.get("reason")]))
    if not front:
        return str(state)
    counts = ", ".join(f"{count} {word}" for word, count in front["trials"].items())
    points = f"{front['points']} points, {front['front_points']} on the front"
    volume = f"{float(front['hypervolume']):.3f}{in_brackets(front.get('hypervolume_interval'))}"
    return f"{state}; trials: {counts or 'none'}; {points}, hypervolume {volume}"


def _text(spec: "AnySpec") -> bytes:
    from sweeper.specification.yaml_file import read_mapping

    if isinstance(spec, Mapping):
        return to_text(spec).encode()
    if not isinstance(spec, str | Path):
        return spec.to_yaml().encode()
    read_mapping(Path(spec))  # says what is wrong with the file
    return Path(spec).read_text(encoding="utf-8-sig").encode()
