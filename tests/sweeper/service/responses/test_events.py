"""The stream of events: everything once, in order, from where a client was; also live, broken off and taken up again."""

import asyncio
import json
from dataclasses import replace

import pytest

from sweeper.errors import RecordError, RefusalError
from sweeper.records import ScorePlan, SweepStatus, TrialStatus
from sweeper.service.responses import events
from sweeper.service.responses.events import Feeds, Position
from sweeper.service.security.access import COOKIE
from sweeper.service.security.limits import StreamLimiter
from sweeper.service.security.tokens import revoke_token
from sweeper.service.settings import Limits

from ..conftest import DONE, SPEC, YAML, bearer, is_problem

URL = f"/api/v1/sweeps/{DONE}/events"


def parsed(text):
    """The events of a stream as (kind, id, data)."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], fields["id"], json.loads(fields["data"])))
    return found


@pytest.fixture
def folder(make_sweep):
    return make_sweep()


@pytest.mark.usefixtures("folder")
def test_a_sweep_that_has_ended_is_told_from_its_beginning_to_its_end(client):
    answer = client.get(URL)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    told = parsed(answer.text)
    assert [kind for kind, _, _ in told] == ["status", *["point"] * 4, *["trial"] * 2, "end"]
    assert [data["epoch"] for kind, _, data in told if kind == "point"] == [1, 2, 1, 2]
    assert [data["id"] for kind, _, data in told if kind == "trial"] == ["t0001", "t0002"]
    assert told[-1][1] == "4.4.end"
    assert told[-1][2]["state"] == "completed"


def test_noisy_scores_are_told_as_estimates_with_their_intervals(client, folder, plan):
    """As the route of points gives them, whichever score of a sweep is noisy."""
    scores = ScorePlan(
        names=("accuracy",),
        noise_multiplier=5.0,
        apart=True,
        std={"validation": 0.05, "test": 0.05},
        rows={"validation": 500, "test": 500},
        epochs=(1, 2),
    )
    for trial in folder.trials().values():
        folder.save_trial(replace(trial, plan=replace(plan, scores=scores)))
    told = [data for kind, _, data in parsed(client.get(URL).text) if kind == "point"]
    routed = client.get(f"/api/v1/sweeps/{DONE}/points").json()["points"]
    assert [one["noisy"]["intervals"]["accuracy"] for one in told] == [
        one["noisy"]["intervals"]["accuracy"] for one in routed
    ]
    assert [one["values"] for one in told] == [one["values"] for one in routed]
    assert [one["noisy"]["released"]["accuracy"] for one in told] == [0.5, 0.7, 0.4, 0.9]
    assert all(one["values"]["accuracy"] != one["noisy"]["released"]["accuracy"] for one in told)


@pytest.mark.usefixtures("folder")
def test_a_client_goes_on_behind_the_last_event_that_it_has(client):
    whole = [event for event in parsed(client.get(URL).text) if event[0] in ("point", "trial", "end")]
    for seen in range(len(whole) - 1):
        rest = parsed(client.get(URL, headers={"Last-Event-ID": whole[seen][1]}).text)
        assert [event for event in rest if event[0] != "status"] == whole[seen + 1 :]


@pytest.mark.usefixtures("folder")
def test_a_client_that_has_the_end_is_told_not_to_come_back_until_the_sweep_goes_on(client, supervisor):
    done = {"Last-Event-ID": "4.4.end"}
    assert client.get(URL, headers=done).status_code == 204
    assert client.post(f"/api/v1/sweeps/{DONE}/extend", json={"trials": 5}).status_code == 202
    client.post(f"/api/v1/sweeps/{DONE}/stop")
    supervisor.tick()
    client.app.state.parts.states.forget(DONE)
    assert client.get(URL, headers=done).status_code == 204


def test_a_client_that_has_an_end_is_told_what_came_since(client, folder, make_point):
    folder.save_points([make_point("t0002", 3, 3.5, 0.95)])
    told = parsed(client.get(URL, headers={"Last-Event-ID": "4.4.end"}).text)
    assert [(kind, id_) for kind, id_, _ in told if kind != "status"] == [("point", "5.4"), ("end", "5.4.end")]
    assert client.get(URL, headers={"Last-Event-ID": "5.4.end"}).status_code == 204
    folder.save_trial(replace(folder.trials()["t0002"], status=TrialStatus.COMPLETED))
    assert client.get(URL, headers={"Last-Event-ID": "5.4.end"}).status_code == 200


def test_the_end_of_a_trial_is_told_once_though_its_row_is_written_again(client, folder):
    """As when the tracking store has made its run."""
    whole = parsed(client.get(URL).text)
    for trial in folder.trials().values():
        folder.save_trial(replace(trial, run_id="abc"))
    again = parsed(client.get(URL).text)
    assert [event for event in again if event[0] == "trial"] == [event for event in whole if event[0] == "trial"]
    assert again[-1][1] == "4.6.end"
    folder.save_trial(replace(folder.trials()["t0002"], status=TrialStatus.FAILED))
    assert [data["status"] for kind, _, data in parsed(client.get(URL).text) if kind == "trial"][2:] == ["failed"]


def test_the_end_of_a_sweep_that_never_began_has_no_rows(tmp_path):
    assert Position.parse("0.0.end").is_last(tmp_path)
    assert not Position.parse("0.0").is_last(tmp_path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text", ["x", "1", "1.x", "-1.0", "1.2.3", "1.2.fin", "1.2.end.end", "9999999999.0", "².0", ""]
)
@pytest.mark.usefixtures("folder")
def test_an_id_of_no_event_is_refused(text, client):
    with pytest.raises(RefusalError, match="Last-Event-ID"):
        Position.parse(text)
    if text.isascii():
        assert is_problem(client.get(URL, headers={"Last-Event-ID": text}), 400)


@pytest.mark.usefixtures("folder")
def test_a_position_beyond_the_end_is_the_end(client):
    told = parsed(client.get(URL, headers={"Last-Event-ID": "999.999"}).text)
    assert [kind for kind, _, _ in told] == ["status", "end"]


class Told:
    """How a sweep stands, as a test sets it."""

    def __init__(self):
        self.state, self.text, self.error, self.asked = SweepStatus.RUNNING, "running", None, 0

    async def __call__(self, name):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.state, json.dumps({"id": name, "state": self.text}).encode()


def follow(folder, steps, position=None, readers=1):
    """Stream a sweep while steps are taken, one whenever the stream has nothing more; return what each reader got."""

    async def read(feeds):
        return parsed(b"".join([part async for part in feeds.stream(DONE, folder.path, position)]).decode())

    async def run():
        told = Told()
        feeds = Feeds(told)
        tasks = [asyncio.create_task(read(feeds)) for _ in range(readers)]
        for step in steps:
            before = told.asked
            while told.asked < before + 2:  # a whole look has ended since
                await asyncio.sleep(0.001)
            for _ in range(100):  # and every reader has heard of it
                await asyncio.sleep(0)
            step(told)
        found = await asyncio.gather(*tasks)
        assert feeds._feeds == {}, "nothing is kept of a sweep that nobody streams"
        return found

    return asyncio.run(run())


@pytest.fixture
def quick(monkeypatch):
    """Look often."""
    monkeypatch.setattr(events, "LOOK_SECONDS", 0.01)


def end(told):
    told.state, told.text = SweepStatus.COMPLETED, "completed"


@pytest.mark.usefixtures("quick")
def test_what_happens_is_told_as_it_happens_to_everybody(folder, make_point):
    def add(_):
        folder.save_points([make_point("t0002", 3, 4.0, 0.9)])
        folder.save_trial(replace(folder.trials()["t0002"], status=TrialStatus.FAILED, reason="NaN"))

    first, second = follow(folder, [add, end], Position(4, 4), readers=2)
    assert first == second
    assert [kind for kind, _, _ in first] == ["status", "point", "trial", "status", "end"]
    assert first[1][2]["epoch"] == 3
    assert first[2][2] == {"id": "t0002", "status": "failed", "reason": "NaN"}


@pytest.mark.usefixtures("quick")
def test_rows_that_were_replaced_are_told_again(folder):
    def replace_file(_):
        path = folder.path / "points.jsonl"
        row = path.read_text().splitlines()[0]
        path.unlink()
        path.write_text(row.replace('"epoch": 1', '"epoch": 7') + "\n")

    (told,) = follow(folder, [lambda _: None, replace_file, lambda _: None, end])
    points = [data["epoch"] for kind, _, data in told if kind == "point"]
    assert points[:4] == [1, 2, 1, 2]
    assert told[-1][0] == "end"
    assert told[-1][1] == "1.4.end"


@pytest.mark.usefixtures("quick")
def test_a_sweep_that_vanishes_ends_its_streams(folder):
    def vanish(told):
        told.error = RecordError("gone")

    (told,) = follow(folder, [vanish])
    assert "end" not in [kind for kind, _, _ in told]


@pytest.mark.usefixtures("quick")
def test_a_stream_with_nothing_to_say_says_so(folder, monkeypatch):
    monkeypatch.setattr(events, "PING_SECONDS", 0.02)

    async def run():
        stream = Feeds(Told()).stream(DONE, folder.path, Position(4, 4))
        parts = []
        async for part in stream:
            parts.append(part)
            if part.startswith(b":"):
                break
        await stream.aclose()
        return parts

    assert asyncio.run(run())[-1] == b": still here\n\n"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("news", [False, True])
def test_a_stream_ends_with_the_right_to_read_it(news, folder, make_point, monkeypatch):
    monkeypatch.setattr(events, "PING_SECONDS", 0.02)
    may_read = [True]

    async def run():
        parts = []
        async for part in Feeds(Told()).stream(DONE, folder.path, Position(4, 4), lambda: may_read[0]):
            parts.append(part)
            assert len(parts) < 500, "it goes on"
            if part.startswith(b"event: status"):
                may_read[0] = False
                if news:
                    folder.save_points([make_point("t0002", 3, 4.0, 0.9)])
        return parts

    assert asyncio.run(asyncio.wait_for(run(), 120))[-1].startswith(b"event: status")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("shown", ["token", "cookie"])
def test_an_open_stream_does_not_outlive_its_token(shown, make_sweep, serve, tokens, make_point, monkeypatch):
    monkeypatch.setattr(events, "PING_SECONDS", 0.02)
    folder, (path, known) = make_sweep(status="running"), tokens
    client = serve(tokens=path)
    headers = bearer(known["read"])
    if shown == "cookie":
        client.post("/login", data={"token": known["read"]})
        headers = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    feed, said = client.app.state.parts, []
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": URL, "raw_path": b"", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def send(message):
        said.append(message.get("body", b""))
        assert len(said) < 500, "it goes on"
        if b"event: trial\nid: 4.4" in said[-1]:
            revoke_token(path, known["read"].split("_")[1])
            folder.save_points([make_point("t0002", 3, 4.0, 0.9)])

    async def run():
        await asyncio.wait_for(client.app(scope, asyncio.Event().wait, send), 120)

    asyncio.run(run())
    assert b"id: 5.4" not in b"".join(said)
    assert feed.streams.open == 0


def test_streams_are_counted_by_client_and_together():
    streams = StreamLimiter(Limits(streams=3, streams_per_client=2))
    with streams.one("a"), streams.one("a"):
        with (
            pytest.raises(RefusalError, match="at most 2 streams of one client and 3 of all") as refused,
            streams.one("a"),
        ):
            pass
        assert refused.value.status == 429
        with streams.one("b"), pytest.raises(RefusalError), streams.one("c"):
            pass
        assert streams.open == 2
    assert streams.open == 0


@pytest.mark.usefixtures("folder")
def test_too_many_streams_are_refused_before_they_begin_and_those_that_ended_do_not_count(serve, tokens):
    reader = bearer(tokens[1]["read"])
    client = serve(tokens=tokens[0], limits=Limits(streams=1, streams_per_client=1, requests_per_second=0))
    for _ in range(3):
        assert client.get(URL, headers=reader).status_code == 200
    parts = client.app.state.parts
    with parts.streams.one("others"):
        assert is_problem(client.get(URL, headers=reader), 429, "close another")
        assert "sweeper_streams 1.0" in client.get("/metrics", headers=reader).text
    assert parts.streams.open == 0


@pytest.mark.usefixtures("out")
def test_a_client_that_goes_away_gives_its_stream_back(client):
    """A stream of a sweep that waits would go on for ever; the client breaks it off after the first event."""
    name = client.post("/api/v1/sweeps", content=SPEC, headers=YAML).json()["id"]
    app, parts = client.app, client.app.state.parts
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": f"/api/v1/sweeps/{name}/events", "raw_path": b"", "query_string": b"", "root_path": "",
        "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def run():
        gone, sent = asyncio.Event(), []

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if b"event: status" in message.get("body", b""):
                assert parts.streams.open == 1
                gone.set()

        await asyncio.wait_for(app(scope, receive, send), 120)
        return sent

    assert asyncio.run(run())[0]["status"] == 200
    assert parts.streams.open == 0
