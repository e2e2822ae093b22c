"""The webhook: what is told, to whom, and that nothing it does can fail a sweep."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeper.backend.endings import RunResult
from sweeper.cli.commands import running
from sweeper.driver.options import Options
from sweeper.driver.reporting import webhook
from sweeper.driver.reporting.alerts import Alerts
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.driver.reporting.webhook import MessageForm, announce, check_url, failure, summary
from sweeper.errors import SweeperError
from sweeper.pareto.dominance import Box
from sweeper.records import Point, SweepStatus
from sweeper.results.front import Front
from sweeper.results.front_record import FrontTrial
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

TOLD = failure("digits", KeyError())


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(webhook, "PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    """Answers with the codes in ``answers``, the last one for ever, and keeps what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.seen.append((self.path, self.headers["Content-Type"], json.loads(body)))
            code = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            self.send_response(code)
            if 300 <= code < 400:
                self.send_header("Location", f"http://127.0.0.1:{made.server_port}/elsewhere")
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    made.seen, made.answers = [], [200]
    made.url = f"http://127.0.0.1:{made.server_port}/hooks/secret?key=k"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def front(objectives, claim, make_point, trial):
    points = (make_point("t0001", 1, 1.0, 0.5), make_point("t0001", 2, 2.0, 0.4))
    trials = {"t0001": FrontTrial.of(trial), "t0002": FrontTrial(config={}, status="failed", reason="KeyError: Ada")}
    return Front(
        sweep="digits",
        objectives=objectives,
        trials=trials,
        points=points,
        on_front=frozenset({("t0001", 1, "")}),
        hypervolume=0.25,
        box=Box.default(objectives),
        ledger={},
        claim=claim,
    )


def told(front, status="completed", reason="", **options):
    return summary(front, status=SweepStatus(status), reason=reason, folder=Path("/home/ada/out/digits-1"), **options)


def test_a_delivery_is_one_post_of_json(server, front):
    assert announce(server.url, told(front)) is None
    ((path, kind, content),) = server.seen
    assert (path, kind) == ("/hooks/secret?key=k", "application/json")
    assert content == {
        "webhook_version": 2,
        "event": "end",
        "sweep": "digits",
        "folder": "digits-1",
        "status": "completed",
        "reason": "",
        "trials": {"completed": 1, "failed": 1},
        "points": 2,
        "front_points": 1,
        "hypervolume": 0.25,
        "hypervolume_interval": None,
        "text": "digits completed. Trials: 1 completed, 1 failed. The front has 1 point, hypervolume 0.250.",
    }


def test_of_a_private_selection_neither_scores_nor_trials_are_told(front, claim):
    exploratory = replace(front, claim=replace(claim, exploratory=True))
    for content in (told(exploratory), told(front, winner_only=True)):
        assert content["hypervolume"] is None
        assert content["hypervolume_interval"] is None
        assert content["front_points"] is None
    assert told(exploratory)["points"] == 2
    content = told(front, winner_only=True)
    assert content["trials"] is None
    assert content["points"] is None
    assert content["status"] == "completed"


def test_a_failure_is_told_without_the_text_that_may_quote_data(front):
    text = json.dumps(told(front, "failed", "DataError: Expected a number, got 'Ada' in row 3"))
    assert "failed" in text
    assert "Ada" not in text
    assert "/home" not in text


@pytest.mark.parametrize(
    ("answers", "tries", "ends_well"), [([503, 500, 200], 3, True), ([429], 3, False), ([404], 1, False)]
)
def test_it_is_tried_again_where_that_may_help(server, answers, tries, ends_well):
    server.answers = answers
    trouble = announce(server.url, TOLD)
    assert len(server.seen) == tries
    assert (trouble is None) == ends_well
    assert ends_well or f"127.0.0.1 answered {answers[-1]}" in trouble


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirections_are_not_followed(server, code):
    server.answers = [code, 200]
    assert f"answered {code}; redirections are not followed" in announce(server.url, TOLD)
    assert [path for path, *_ in server.seen] == ["/hooks/secret?key=k"]


def test_troubles_name_the_host_and_no_secret(server, monkeypatch):
    server.answers = [500]
    troubles = [
        announce(server.url, TOLD),
        announce("http://127.0.0.1:9/secret", TOLD),
        announce("ftp://h/secret", TOLD),
    ]
    monkeypatch.setattr(webhook.urllib.request, "build_opener", lambda *_: 1 / 0)
    troubles.append(announce("http://host/secret", TOLD))
    assert not any("secret" in trouble or "\n" in trouble for trouble in troubles)
    assert "in 3 tries: 127.0.0.1: Connection refused" in troubles[1]


def test_it_waits_ten_seconds_and_no_more(monkeypatch):
    waited = []

    def open_(_self, _request, timeout):
        waited.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(webhook.urllib.request.OpenerDirector, "open", open_)
    assert announce("https://host/x", TOLD) == "The webhook was not delivered in 3 tries: host: TimeoutError"
    assert waited == [10.0] * 3


@pytest.mark.parametrize(
    "url", ["", "host/x", "file:///etc/passwd", "http://", "https://host:x/", "http://ho st/", "http://host/\n"]
)
def test_other_addresses_are_refused(url):
    with pytest.raises(SweeperError, match=r"Expected an address that begins with http"):
        check_url(url)


def test_an_address_with_a_password_is_refused_without_repeating_it():
    with pytest.raises(SweeperError, match="without user and password, for host") as refused:
        check_url("https://ada:hunter2@host/x")
    assert "hunter2" not in str(refused.value)
    assert check_url("https://host:8443/x?y=z") == "https://host:8443/x?y=z"


# What chats understand


@pytest.mark.parametrize(
    ("url", "wanted", "form"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "auto", MessageForm.SLACK),
        ("https://ada.webhook.office.com/webhookb2/x", "auto", MessageForm.TEAMS),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "auto", MessageForm.TEAMS),
        ("https://hooks.slack.com.evil.example/x", "auto", MessageForm.JSON),
        ("https://nothooks.slack.com/x", "auto", MessageForm.JSON),
        ("https://chat.example/hooks/x", "slack", MessageForm.SLACK),
        ("https://chat.example/hooks/x", "auto", MessageForm.JSON),
    ],
)
def test_the_form_is_that_of_the_host_or_the_one_that_is_wanted(url, wanted, form):
    assert MessageForm.of(url, wanted) is form


def test_an_unknown_form_is_refused():
    with pytest.raises(SweeperError, match="Expected auto, json, slack, teams, got 'email'"):
        MessageForm.of("https://host/x", "email")


def test_slack_is_sent_text_and_nothing_else(server, front):
    assert announce(server.url, told(replace(front, sweep="a<b>&c")), MessageForm.SLACK) is None
    ((_, kind, content),) = server.seen
    assert kind == "application/json"
    assert list(content) == ["text"]
    assert content["text"].startswith("a&lt;b&gt;&amp;c completed. Trials: 1 completed, 1 failed.")


def test_teams_is_sent_an_adaptive_card_whose_text_is_read_as_it_stands(server, front):
    assert announce(server.url, told(front), MessageForm.TEAMS) is None
    ((_, _, content),) = server.seen
    assert content["type"] == "message"
    (attachment,) = content["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.2")
    ((run,),) = (block["inlines"] for block in card["body"])
    assert run == {"type": "TextRun", "text": told(front)["text"]}


# When it is told


def progress(**more):
    return SweepProgress(**({"name": "digits", "total": 4} | more))


POINT = Point(trial="t0001", epoch=1, values={"epsilon": 1.0, "accuracy": 0.98765})


def events(server):
    return [content["event"] for *_, content in server.seen]


def test_start_first_front_budget_and_end_are_told_once_each_and_in_order(server, front):
    alerts = Alerts(server.url, "digits")
    alerts.start("everything will cost epsilon 3.")
    for state in (
        progress(),
        progress(front=(POINT,), done=1, spent=0.5),
        progress(front=(POINT,), done=2, spent=0.5),
        progress(front=(POINT,), done=3, spent=0.95),
        progress(front=(POINT,), done=4, spent=1.0),
    ):
        alerts.look(state)
    assert alerts.end(told(front)) is None
    assert events(server) == ["start", "first-front", "budget-nearly-spent", "end"]
    assert server.seen[0][2]["text"] == "digits has started: everything will cost epsilon 3."
    assert "98765" not in str(server.seen)


def test_with_everything_that_is_told_comes_the_address_of_the_page(server, front):
    page = "https://sweeps.example.org/?sweep=digits-1"
    alerts = Alerts(server.url, "digits", page=page)
    alerts.start("everything will cost epsilon 3.")
    alerts.end(told(front))
    assert [content["page"] for *_, content in server.seen] == [page, page]
    assert [content["text"].endswith(f". {page}") for *_, content in server.seen] == [True, True]


def test_a_sweep_that_resumes_tells_the_page_that_it_was_started_with(server, tmp_path):
    manifest = Manifest(name="digits", status=SweepStatus.STOPPED, spec={}, source="s", page="http://first/?sweep=s")
    SweepFolder(tmp_path).write_manifest(manifest)
    for given, page in ((None, "http://first/?sweep=s"), ("http://other/?sweep=s", "http://other/?sweep=s")):
        alerts = running._alerts_of(tmp_path, server.url, "auto", given)
        alerts.start("it resumes")
        alerts.end({"text": "over"})
        assert server.seen[-1][2] == {"text": f"over {page}", "page": page}
    assert [content.get("event") for *_, content in server.seen] == ["start", None, "start", None]


def test_of_a_sweep_that_cannot_be_read_the_end_alone_is_told(server, tmp_path):
    alerts = running._alerts_of(tmp_path, server.url, "auto", None)
    alerts.start("it resumes")
    alerts.end({"text": "over"})
    assert [content for *_, content in server.seen] == [{"text": "over"}]


def test_hours_that_are_nearly_over_are_told(server, front):
    alerts = Alerts(server.url, "digits")
    alerts.look(progress(elapsed_seconds=89.0, limit_seconds=100.0))
    alerts.look(progress(elapsed_seconds=91.0, limit_seconds=100.0))
    alerts.end(told(front))
    assert events(server) == ["budget-nearly-spent", "end"]


def test_of_a_private_selection_the_end_alone_is_told(server, front):
    alerts = Alerts(server.url, "digits", silent=True)
    alerts.start("it selects privately")
    alerts.look(progress(front=(POINT,), spent=0.99, elapsed_seconds=99.0, limit_seconds=100.0))
    assert alerts.end(told(front, winner_only=True)) is None
    assert events(server) == ["end"]


def test_an_address_that_does_not_answer_delays_nothing(server, front, monkeypatch):
    monkeypatch.setattr("sweeper.driver.reporting.alerts.CLOSE_SECONDS", 0.1)
    held = threading.Event()
    monkeypatch.setattr("sweeper.driver.reporting.alerts.announce", lambda *_: held.wait())
    alerts = Alerts(server.url, "digits")
    alerts.start("x")
    alerts.look(progress(front=(POINT,)))
    assert alerts.end(told(front)) == "The webhook was not delivered: no answer in time"
    held.set()


def test_without_an_address_nobody_is_told(front):
    alerts = Alerts(None, "digits")
    alerts.start("x")
    alerts.look(progress(front=(POINT,)))
    assert alerts.end(told(front)) is None


# The command


@pytest.fixture
def drive(monkeypatch, front, tmp_path):
    """End a sweep that was never run, on the command line."""

    def drive(url, **info):
        manifest = Manifest(name="digits", status=SweepStatus.STOPPED, spec={"search": {}}, source="digits.yaml")
        sweep = SimpleNamespace(directory=tmp_path / "digits-1", manifest=lambda: replace(manifest, **info))
        ledger = {"everything": SimpleNamespace(statement="It cost something.", released=True, fixed=False)}
        ended = SimpleNamespace(
            sweep=sweep,
            front=replace(front, ledger=ledger),
            troubles=(),
            unwritten=(),
            progress=None,
            look="",
            left=None,
            failures={"t0002": "ValueError: Name-042450"},
            outcome=RunResult(),
        )
        monkeypatch.setattr(
            "sweeper.driver.reporting.progress.closing_summary",
            lambda *_, notes, failures, **__: "\n".join([*notes, *failures.values()]),
        )
        driven = []
        alerts = running._alerts(url, "auto", "digits", None, silent=False)
        running._drive(Options(), lambda _: driven.append(1) or ended, alerts, "digits", None)
        return driven

    return drive


def test_the_owner_at_the_console_sees_the_whole_error_of_a_trial_and_nobody_else(server, drive, capsys):
    assert drive(server.url)
    assert "ValueError: Name-042450" in capsys.readouterr().out
    assert "042450" not in str(server.seen)


def test_the_command_tells_and_reports_what_went_wrong(server, drive, capsys):
    assert drive(server.url, reason="search.hours is over")
    assert [(told["status"], told["reason"]) for *_, told in server.seen] == [("stopped", "search.hours is over")]
    assert "webhook" not in capsys.readouterr().out
    assert drive(server.url, spec={"search": {"selection": "private"}})
    assert server.seen.pop()[2]["trials"] is None
    server.answers = [404]
    assert drive(server.url)
    assert "The webhook was not delivered: 127.0.0.1 answered 404" in capsys.readouterr().out


def test_an_error_is_told_without_its_text(server, front):
    def fails(_):
        raise SweeperError("row 17 says: secret")

    with pytest.raises(SweeperError, match="row 17"):
        running._drive(
            Options(), fails, running._alerts(server.url, "auto", "digits", None, silent=False), "digits", None
        )
    (told,) = (told for *_, told in server.seen)
    assert {"sweep": "digits", "status": "failed", "reason": "SweeperError", "points": None}.items() <= told.items()
    assert "secret" not in str(told)
    assert told.keys() == summary(front, status=SweepStatus.FAILED, reason="", folder=Path("x")).keys()


def test_an_address_that_cannot_be_told_is_refused_before_the_sweep(drive):
    with pytest.raises(SweeperError, match="--webhook"):
        drive("ftp://host/x")
