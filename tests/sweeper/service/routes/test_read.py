"""What can be read of a sweep over HTTP, in every format."""

import csv
import gzip
import hashlib
import io
import json
import threading
import zipfile
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice

import pytest
from starlette.responses import FileResponse

from clipless.audits.finding import AuditKind, Finding
from sweeper.adapters import dump
from sweeper.errors import ExportError
from sweeper.papers.files import sums_of
from sweeper.privacy.claims import WARM_START
from sweeper.privacy.ledger import Ledger
from sweeper.records import SweepStatus
from sweeper.results.exporters import Format
from sweeper.results.front import read_front
from sweeper.service.catalog import Catalog
from sweeper.service.responses import exports
from sweeper.service.responses.rendered import ENTRY_BYTES, KEPT_BYTES, RenderedResponse, ResponseCache
from sweeper.service.routes import read
from sweeper.service.settings import Limits
from sweeper.service.supervision import submissions
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.store.evidence import EVIDENCE_NAME, WHOLE_SWEEP, Evidence, append_evidence

from ....factories import make_rehearsals, write_rehearsals
from ..conftest import DONE, is_problem, model_of

URL = f"/api/v1/sweeps/{DONE}"
TRAVERSAL = (
    "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "....//", "..%5c..", "%00", f"{DONE}%00", f"{DONE}%2f..",
    ".selecting-x", "%252e%252e", "~", "none", "a" * 500, "ä", "%ff", "<script>",
)  # fmt: skip


@pytest.fixture
def folder(make_sweep):
    return make_sweep()


def contradiction(trial):
    """What an audit says that refuses the points of a trial."""
    said = {"epsilon": 1.0, "delta": 1e-4, "attained": 4.0, "confidence": 1.0, "p_value": 0.0, "contradicted": True}
    return Evidence(trial=trial, finding=Finding(kind=AuditKind.STEP, subject="s", **said), found="now", program="1")


def test_sweeps_are_listed_newest_first_page_by_page(client, make_sweep, tmp_path):
    for day in range(1, 6):
        make_sweep(f"digits-2025010{day}-000000")
    make_sweep(".selecting-x")
    first = client.get("/api/v1/sweeps", params={"limit": 2}).json()
    assert [row["id"] for row in first["sweeps"]] == ["digits-20250105-000000", "digits-20250104-000000"]
    assert {key: first[key] for key in ("total", "offset", "limit")} == {"total": 5, "offset": 0, "limit": 2}
    last = client.get("/api/v1/sweeps", params={"offset": 4, "limit": 2}).json()
    assert [row["id"] for row in last["sweeps"]] == ["digits-20250101-000000"]
    assert last["sweeps"][0] == {
        "id": "digits-20250101-000000", "name": "digits", "state": "completed", "status": "completed", "reason": "",
        "submitted": None, "by": tmp_path.owner(),
    }  # fmt: skip
    told = "Expected limit <= 1000 (limit in the query of the request)"
    assert is_problem(client.get("/api/v1/sweeps", params={"limit": 1001}), 422, told)
    told = "Expected offset >= 0 (offset in the query of the request)"
    assert is_problem(client.get("/api/v1/sweeps", params={"offset": -1}), 422, told)


def test_a_sweep_that_cannot_be_read_is_listed_all_the_same(client, folder):
    (folder.path / "sweep.json").write_text("{")
    (row,) = client.get("/api/v1/sweeps").json()["sweeps"]
    assert (row["id"], row["name"]) == (DONE, None)
    assert is_problem(client.get(URL), 409, "Expected a JSON object")


def test_a_sweep_whose_requests_are_broken_hides_no_other(client, folder, make_sweep):
    make_sweep("digits-20250101-000000")
    submissions.write(folder.path, Submission(submitted=1.0, intent=Intent.RUN, job="gone"))
    client.app.state.parts.supervisor._queue.load()
    (folder.path / "requests.jsonl").write_bytes(b'{"stop": true}\n\x00\n{"steer": []}\n')
    broken, whole = client.get("/api/v1/sweeps").json()["sweeps"]
    assert (broken["id"], broken["name"], broken["state"], broken["status"]) == (DONE, "digits", "failed", "completed")
    assert broken["reason"].startswith(f"Expected a JSON object on line 2 of {DONE}/requests.jsonl")
    assert (whole["state"], whole["reason"]) == ("completed", "")
    assert is_problem(client.get(URL), 409, "on line 2 of")


def test_a_status_says_how_a_sweep_stands_and_nothing_of_this_machine(client, folder, out):
    answer = client.get(URL)
    content = answer.json()
    assert content["id"] == DONE
    assert (content["state"], content["status"], content["front"]["points"]) == ("completed", "completed", 4)
    assert content["front"]["trials"] == {"completed": 1, "stopped": 1}
    assert content["front"]["front_points"] == 3
    assert content["front"]["hypervolume"] == read_front(folder.front).hypervolume
    assert content["spec"]["model"] == {"architecture": "mlp"}
    assert not {"tracking", "data_dir", "source", "cluster"} & set(content)
    assert str(out) not in answer.text
    assert "secret" not in answer.text


def test_prices_are_those_of_the_ledger_as_it_is_now(client, folder, event):
    client.get(URL), client.get(f"{URL}/front")
    ledger = Ledger(folder.ledger)
    for trials in (1, 2):
        ledger.open(f"t{trials}", event)
        answers = {question: dump(answer) for question, answer in ledger.answers(1e-4).items()}
        assert client.get(URL).json()["front"]["ledger"] == answers
        assert client.get(f"{URL}/front").json()["ledger"] == answers


@pytest.mark.parametrize("within", [True, False])
def test_of_files_in_a_spec_the_name_alone_is_told(within, serve, make_sweep, tmp_path, content):
    data = tmp_path / "data"
    data.mkdir()
    place = data if within else "/home/alice/trial-7"
    files = {"path": f"{place}/patients.csv", "ranges": f"{place}/declared/ranges.yaml"}
    search = {"trials": 2, "warm_start": f"{place}/earlier"}
    make_sweep(spec=content | {"data": {**files, "target": "age"}, "search": search})
    told = serve(data_dir=data).get(URL).json()["spec"]
    assert told["data"] == {"path": "patients.csv", "ranges": "ranges.yaml", "target": "age"}
    assert told["search"] == {"trials": 2, "warm_start": "earlier"}


def test_a_sweep_without_a_front_says_so(client, folder):
    folder.front.unlink()
    assert client.get(URL).json()["front"] is None
    for tail in ("front", "front?format=csv", "front?format=tex", "front?format=png", "points?format=csv"):
        assert is_problem(client.get(f"{URL}/{tail}"), 404, "has none yet"), tail
    assert is_problem(client.get(f"{URL}/pick"), 409)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoil", ['{"schema_version": 99}', '{"schema_version": 1}', "[]", "{"])
def test_a_front_that_cannot_be_read_is_no_internal_error(spoil, client, folder):
    folder.front.write_text(spoil)
    for tail in ("", "/front", "/front?format=csv", "/front?format=html", "/points?format=csv", "/pick", "/card"):
        assert is_problem(client.get(URL + tail), 409), tail


def test_the_front_as_json_is_a_front_of_its_points_only(client, folder, tmp_path):
    whole = read_front(folder.front)
    (tmp_path / "front.json").write_bytes(client.get(f"{URL}/front").content)
    got = read_front(tmp_path / "front.json")
    assert got.front_points == whole.front_points
    assert (len(got.points), len(whole.points)) == (3, 4)
    assert (got.hypervolume, got.claim, got.ledger) == (whole.hypervolume, whole.claim, whole.ledger)


def test_the_front_as_csv_is_the_rows_that_are_on_it(client, folder):
    answer = client.get(f"{URL}/front", params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["trial"], row["epoch"]) for row in rows] == [("t0001", "1"), ("t0001", "2"), ("t0002", "2")]
    everything = client.get(f"{URL}/points", params={"format": "csv"}).text
    assert everything == read_front(folder.front).to_csv()


def test_the_front_of_an_earlier_version_is_told_as_this_one_states_it(client, folder):
    content = json.loads(folder.front.read_text())
    place = "/home/ann/out/earlier-1"
    sentence = WARM_START.format(source=place)
    content["claim"] |= {"steered": [sentence], "conditions": [sentence, *content["claim"]["conditions"]]}
    ends = {"is_final": True, "released": {"auroc": 0.5}, "intervals": {"auroc": [0.45, 0.55]}}
    for point in content["points"]:
        point["values"]["auroc"] = 0.5
        point |= {"errors": {"accuracy": [5.0, 100.0], "auroc": [0.05, 1600.0]}, "noisy": ends}
    folder.front.write_text(json.dumps(content))
    for tail in ("/front", "/pick", "/card"):
        told = client.get(URL + tail).text
        assert place not in told, tail
        assert "earlier-1" in told, tail
    told = client.get(f"{URL}/front").json()
    assert [point["noisy"]["intervals"] for point in told["points"]] == [{"auroc": [0.0, 1.0]}] * len(told["points"])


@pytest.mark.long
def test_the_report_comes_as_a_page_that_may_load_nothing_and_tells_no_path(client, folder):
    answer = client.get(f"{URL}/front", params={"format": "html"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "plotly" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    assert str(folder.path.parent) not in answer.text
    assert f"pick {folder.path.name}" in answer.text


@pytest.mark.parametrize("status", ["running", "completed"])
def test_what_draws_is_told_whether_the_service_knows_a_driver(client, make_sweep, monkeypatch, status):
    """One of another machine holds no lock here, so that nothing but the service can know."""
    make_sweep(status=status)

    def said(_folder, path, *_, lost, **_options):
        path.write_text(str(lost))
        return path

    monkeypatch.setattr(exports, "exporter", lambda _: said)
    assert client.get(f"{URL}/front", params={"format": "html"}).text == str(status == "running")


@pytest.mark.chromium
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("format_", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
@pytest.mark.usefixtures("folder")
def test_the_front_comes_as_a_picture(format_, start, client):
    answer = client.get(f"{URL}/front", params={"format": format_})
    assert answer.status_code == 200, answer.text
    assert answer.content.startswith(start)
    assert answer.headers["content-type"].startswith(Format(format_).media_type)


@pytest.mark.long
def test_a_figure_of_the_report_comes_alone(client, folder):
    page = client.get(f"{URL}/front", params={"format": "html", "figure": "front"})
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == exports.POLICY
    assert len(page.text) < len(client.get(f"{URL}/front", params={"format": "html"}).text)
    numbers = client.get(f"{URL}/front", params={"figure": "front"})
    assert numbers.headers["content-type"] == "application/json"
    assert numbers.json()["figure"] == "front"
    table = client.get(f"{URL}/front", params={"format": "csv", "figure": "front"})
    assert table.headers["content-type"].startswith("text/csv")
    assert len(table.text.splitlines()) == 1 + len(numbers.json()["rows"]) > 1
    assert client.get(f"{URL}/front").json()["points"], "the front itself is another answer"
    assert is_problem(
        client.get(f"{URL}/front", params={"figure": "pie"}), 404, "Expected the name of a figure, got 'pie'; "
    )
    for name in ("../front", "a" * 41, ""):
        assert client.get(f"{URL}/front", params={"figure": name}).status_code == 422
    del folder


def test_without_a_browser_pictures_are_unavailable_and_nothing_else(client, folder, monkeypatch):
    def none(*_, **_options):
        raise ExportError(f"Expected a Chromium or Chrome for png, found none ({folder.path})")

    monkeypatch.setattr(exports, "exporter", lambda _: none)
    answer = client.get(f"{URL}/front", params={"format": "png"})
    assert is_problem(answer, 503, f"found none ({DONE})")
    assert client.get(f"{URL}/front").status_code == 200


@pytest.mark.usefixtures("folder")
def test_a_picture_may_have_the_width_of_a_paper_and_nothing_else_has_one(client, monkeypatch):
    def drawn(_folder, path, _figure, paper, **_options):
        path.write_text(str(paper))
        return path

    monkeypatch.setattr(exports, "exporter", lambda _: drawn)
    for preset, width in (("column", 85.0), ("page", 178.0)):
        answer = client.get(f"{URL}/front", params={"format": "svg", "preset": preset})
        assert f"width={width}" in answer.text
    assert client.get(f"{URL}/front", params={"format": "svg"}).text == "None"
    refused = client.get(f"{URL}/front", params={"format": "csv", "preset": "page"})
    assert is_problem(refused, 422, "Expected format=png, svg or pdf with preset=page, got csv")


@pytest.mark.usefixtures("folder")
def test_what_waits_to_be_drawn_keeps_nothing_else_waiting_and_is_bounded(client, monkeypatch):
    gate = threading.Event()

    def held(_folder, path, *_, **_options):
        gate.wait(300)
        path.write_text("drawn")
        return path

    monkeypatch.setattr(exports, "exporter", lambda _: held)
    threads = 40  # that anyio has for everything
    with ThreadPoolExecutor(threads + exports.MOST_DRAWN + 1) as pool:
        try:
            asked = [
                pool.submit(client.get, f"{URL}/front", params={"format": "html", "figure": f"f{i}"})
                for i in range(threads + exports.MOST_DRAWN)
            ]
            refused = [one.result() for one in islice(as_completed(asked, 60), threads)]
            for path in ("/healthz", f"{URL}/points", f"{URL}/card"):
                assert pool.submit(client.get, path).result(300).status_code == 200
        finally:
            gate.set()
    for answer in refused:
        assert is_problem(answer, 503, "fewer pages and pictures")
        assert answer.headers["retry-after"] == str(exports.RETRY_SECONDS)
    assert [one.result().status_code for one in asked].count(200) == exports.MOST_DRAWN
    assert client.get(f"{URL}/front", params={"format": "html"}).text == "drawn"


def test_points_come_page_by_page_or_all_at_once(client, folder):
    expected = [dump(point) for point in folder.points().values()]
    page = client.get(f"{URL}/points", params={"offset": 1, "limit": 2}).json()
    assert page == {"points": json.loads(json.dumps(expected[1:3])), "total": 4, "offset": 1, "limit": 2}
    lines = client.get(f"{URL}/points", params={"format": "ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == json.loads(json.dumps(expected))
    folder.save_points([replace(next(iter(folder.points().values())), epoch=9)])
    assert client.get(f"{URL}/points").json()["total"] == 5


@pytest.mark.usefixtures("folder")
def test_pages_beyond_the_end_fill_no_memory(client):
    kept = client.app.state.parts.answers._cache
    for offset in range(20):
        page = client.get(f"{URL}/points", params={"offset": 10**8 + offset, "limit": 2}).json()
        assert page == {"points": [], "total": 4, "offset": 10**8 + offset, "limit": 2}
    assert len(kept) == 0
    assert RenderedResponse.of(b"", "").size == ENTRY_BYTES, "an empty answer takes memory too"


def test_points_without_privacy_are_standard_json(client, folder, make_point):
    folder.save_points([make_point("t0002", 3, float("inf"), float("nan"))])
    values = client.get(f"{URL}/points", params={"offset": 4}).json()["points"][0]["values"]
    assert (values["epsilon"], values["accuracy"]) == ("Infinity", "NaN")


@pytest.mark.usefixtures("folder")
def test_a_point_is_picked_with_its_card_and_model(client):
    picked = client.get(f"{URL}/pick", params={"max_epsilon": 2.5, "min": ["certified@1/4=0.15"]}).json()
    assert (picked["trial"], picked["epoch"], picked["values"]["accuracy"]) == ("t0001", 2, 0.7)
    assert picked["card"]["guarantee"]["delta"] == 1e-4
    model = client.get(picked["model"])
    assert model.content == model_of("t0001", 2)
    assert model.headers["content-disposition"] == f'attachment; filename="{DONE}-t0001-2.safetensors"'
    assert model.headers["content-type"] == "application/octet-stream"


@pytest.mark.usefixtures("folder")
def test_a_card_comes_in_words_and_as_json(client):
    words = client.get(f"{URL}/card", params={"max_epsilon": 1.0})
    assert words.headers["content-type"].startswith("text/markdown")
    assert "t0001" in words.text
    content = client.get(f"{URL}/card", params={"format": "json", "max_epsilon": 1.0}).json()
    assert (content["trial"], content["epoch"], content["sweep"]) == ("t0001", 1, "digits")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "query",
    ["max_epsilon=0.01", "min=accuracy", "min=accuracy=x", "min=nothing=1", "min=accuracy=nan", "max_epsilon=nan",
     "max_epsilon=inf", "max_epsilon=x", "min=" + "&min=".join("a=1" for _ in range(30)), "min==1"],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_conditions_that_nothing_meets_are_refused(query, client):
    for what in ("pick", "card"):
        assert is_problem(client.get(f"{URL}/{what}?{query}"), 422)


@pytest.mark.parametrize("format", ["json", "ndjson"])
def test_a_broken_row_of_points_is_named_every_time_until_it_is_mended(client, make_sweep, format):
    folder = make_sweep(status="running")
    path = folder.path / "points.jsonl"
    whole = path.read_text()
    assert client.get(f"{URL}/points", params={"format": format}).status_code == 200
    path.write_text(whole + '{"trial": "t0009"}\n')
    for offset in range(3):
        answer = client.get(f"{URL}/points", params={"format": format, "offset": offset})
        assert is_problem(answer, 409, "on line 5 of")
    path.write_text(whole)
    assert "t0002" in client.get(f"{URL}/points", params={"format": format}).text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("given", "status"),
    [("bytes=a-b", 400), ("bytes=5-1", 400), ("lines=1-2", 400), ("x", 400), ("bytes=99999-", 416)],
)
@pytest.mark.usefixtures("folder")
def test_an_odd_range_of_a_model_is_refused_as_everything_else_is(client, given, status):
    answer = client.get(f"{URL}/models/t0001/2", headers={"Range": given})
    assert is_problem(answer, status, "Expected a Range of bytes that the model has")
    assert answer.headers.get("content-range") == (f"bytes */{len(model_of('t0001', 2))}" if status == 416 else None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("given", "part"), [("bytes=0-4", slice(0, 5)), ("bytes=-6", slice(-6, None)), ("bytes=9-", slice(9, None))]
)
@pytest.mark.usefixtures("folder")
def test_a_part_of_a_model_is_sent(client, given, part):
    answer = client.get(f"{URL}/models/t0001/2", headers={"Range": given})
    assert (answer.status_code, answer.content) == (206, model_of("t0001", 2)[part])


@pytest.mark.usefixtures("folder")
def test_a_model_is_sent_with_its_hash(client):
    answer = client.get(f"{URL}/models/t0001/2", headers={"Range": "bytes=0-4"})
    digest = b64encode(hashlib.sha256(model_of("t0001", 2)).digest()).decode()
    assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"


def test_a_picked_point_is_sent_with_its_papers(client, folder, event, tmp_path):
    assert is_problem(client.get(f"{URL}/papers"), 409, "Expected the ledger of the sweep")
    Ledger(folder.ledger).open("t0002", event)
    answer = client.get(f"{URL}/papers")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path / "papers")
    found = {path.name for path in (tmp_path / "papers").iterdir()}
    assert {"model.safetensors", "card.json", "card.md", "ledger.jsonl", "spec.yaml", "SHA256SUMS"} <= found
    assert (tmp_path / "papers" / "SHA256SUMS").read_text() == sums_of(tmp_path / "papers")
    assert str(tmp_path) not in (tmp_path / "papers" / "card.json").read_text()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=0-4"}, {"Range": "bytes=0-1,4-5"}])
def test_a_model_that_is_removed_before_it_is_sent_is_unknown(client, folder, monkeypatch, headers):
    send = FileResponse.__call__

    async def late(self, *given):
        (folder.path / "models" / "t0001-2.safetensors").unlink()
        await send(self, *given)

    monkeypatch.setattr(FileResponse, "__call__", late)
    assert is_problem(client.get(f"{URL}/models/t0001/2", headers=headers), 404, "whose model was kept")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", TRAVERSAL)
@pytest.mark.usefixtures("folder")
def test_no_name_leads_out_of_the_folder(name, client, out, make_sweep):
    make_sweep(".selecting-x")
    (out / "secret").write_text("secret")
    for what in ("", "/points", "/front", "/pick", "/card", "/papers", "/models/t0001/1", "/events"):
        answer = client.get(f"/api/v1/sweeps/{name}{what}")
        if answer.status_code != 200:  # ".." was taken out of the address by the client itself
            assert is_problem(answer, answer.status_code)
            assert answer.status_code in (404, 422)
        assert "secret" not in answer.text


def test_the_model_of_a_point_made_from_iterates_is_found_where_pick_says(client, folder, make_point):
    front = read_front(folder.front)
    name = folder.model_name("t0001", 1, "slow-midpoint")
    made = replace(make_point("t0001", 1, 1.0, 0.95, 0.1, model=name), made_from="slow-midpoint")
    replace(front, points=(*front.points, made), on_front=front.on_front | {made.key}).write(folder.front)
    (folder.path / name).write_bytes(b"halfway")
    picked = client.get(f"{URL}/pick").json()
    assert (picked["trial"], picked["epoch"], picked["made_from"]) == made.key
    assert picked["model"].endswith("/models/t0001/1?made_from=slow-midpoint")
    assert client.get(picked["model"]).content == b"halfway"
    assert client.get(picked["model"].partition("?")[0]).content == model_of("t0001", 1)
    for wrong in ("../x", "a.b", "x" * 51):
        assert is_problem(client.get(f"{URL}/models/t0001/1", params={"made_from": wrong}), 422)


@pytest.mark.parametrize("refused", ["t0001", WHOLE_SWEEP])
def test_the_model_of_a_point_that_an_audit_refuses_is_not_sent(refused, client, folder):
    assert client.get(f"{URL}/models/t0001/1").status_code == 200
    append_evidence(folder.path, [contradiction(refused)])
    assert is_problem(client.get(f"{URL}/models/t0001/1"), 404, "whose model was kept")
    assert client.get(f"{URL}/models/t0002/2").status_code == (200 if refused else 404)


def test_a_model_is_not_sent_where_the_evidence_of_audits_cannot_be_read(client, folder):
    (folder.path / EVIDENCE_NAME).write_text('{"version": 99}\n')
    assert is_problem(client.get(f"{URL}/models/t0001/1"), 409, "of evidence")
    folder.front.unlink()
    assert is_problem(client.get(f"{URL}/models/t0001/1"), 404, "has none yet")


def test_a_model_beside_the_front_is_not_sent(client, folder):
    (folder.path / "models" / "t0002-1.safetensors").write_bytes(b"dominated")
    assert is_problem(client.get(f"{URL}/models/t0002/1"), 404, "one of the front")


def test_what_an_audit_refuses_leaves_every_answer_about_the_front_at_once(client, folder):
    def told():
        front = client.get(f"{URL}/front").json()["points"]
        rows = csv.DictReader(io.StringIO(client.get(f"{URL}/front?format=csv").text))
        everything = csv.DictReader(io.StringIO(client.get(f"{URL}/points?format=csv").text))
        return [
            {point["trial"] for point in front},
            {row["trial"] for row in rows},
            {row["trial"] for row in everything if row["on_front"] == "True"},
        ]

    assert told() == [{"t0001", "t0002"}] * 3
    assert client.get(URL).json()["front"]["front_points"] == 3
    append_evidence(folder.path, [contradiction("t0001")])
    assert told() == [{"t0002"}] * 3
    assert client.get(URL).json()["front"]["front_points"] < 3


def test_tables_have_the_price_of_the_ledger_as_it_is_now(client, folder, event):
    ledger = Ledger(folder.ledger)
    for tail in ("front?format=csv", "points?format=csv"):
        before = client.get(f"{URL}/{tail}").text
        ledger.open(tail[:5], event)
        after = client.get(f"{URL}/{tail}").text
        (priced,) = {row["price"] for row in csv.DictReader(io.StringIO(after))}
        assert float(priced) == ledger.answers(1e-4)["winner"].epsilon
        assert after != before


@pytest.mark.sampled(5)
@pytest.mark.parametrize("trial", TRAVERSAL)
def test_no_trial_leads_to_another_file(trial, client, folder):
    (folder.path / "models" / "x-1.safetensors").symlink_to(folder.path / "sweep.json")
    answer = client.get(f"{URL}/models/{trial}/1")
    assert answer.status_code in (404, 422)
    assert is_problem(client.get(f"{URL}/models/x/1"), 404)
    assert is_problem(client.get(f"{URL}/models/t0002/1"), 404, "whose model was kept"), "not on the front"
    for epoch in ("0", "-1", "x", "1e3", "99999999999999999999"):
        assert is_problem(client.get(f"{URL}/models/t0001/{epoch}"), 422)


def test_what_a_client_has_already_is_not_sent_again(client, folder):
    for tail in ("", "/front", "/points", "/card", "/points?format=ndjson"):
        first = client.get(URL + tail)
        again = client.get(URL + tail, headers={"If-None-Match": f'"x", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b""), tail
        assert again.headers["etag"] == first.headers["etag"]
    told = client.get(URL).headers["etag"]
    folder.write_manifest(replace(folder.read_manifest(), status=SweepStatus.STOPPED))
    assert client.get(URL, headers={"If-None-Match": told}).status_code == 200


@pytest.mark.usefixtures("folder")
def test_answers_are_packed_for_who_can_unpack_them(client):
    for accept, packed in (("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False)):
        answer = client.get(f"{URL}/front", headers={"Accept-Encoding": accept})
        assert (answer.headers.get("content-encoding") == "gzip") is packed
        assert answer.json()["sweep"] == "digits"
        assert answer.headers["vary"] == "Accept-Encoding"


@pytest.mark.usefixtures("folder")
def test_an_answer_is_made_once_for_all_who_wait_and_what_is_kept_is_bounded(out):
    import asyncio

    answers, made = ResponseCache(Catalog(out)), []

    def make(found):
        made.append(found)
        return RenderedResponse.of(b"x" * 5000, "text/plain")

    async def ask():
        return await asyncio.gather(*(answers.get(DONE, "what", make) for _ in range(50)))

    assert len(set(map(id, asyncio.run(ask())))) == 1
    assert len(made) == 1

    async def fail():
        results = await asyncio.gather(
            *(answers.get(DONE, "bad", lambda _: 1 / 0) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [ZeroDivisionError] * 3

    asyncio.run(fail())
    few = ResponseCache(Catalog(out), limit=25_000)
    assert KEPT_BYTES > 25_000

    async def many():
        for what in range(10):
            await few.get(DONE, what, make)

    asyncio.run(many())
    assert few._cache.total == 3 * make(None).size <= 25_000
    assert len(few._cache) == 3
    assert gzip.decompress(RenderedResponse.of(b"x" * 5000, "").packed) == b"x" * 5000


@pytest.mark.usefixtures("folder")
def test_pages_are_no_longer_than_the_service_allows(serve):
    client = serve(limits=Limits(page=2, requests_per_second=0))
    assert len(client.get(f"{URL}/points").json()["points"]) == 2
    assert is_problem(client.get(f"{URL}/points", params={"limit": 3}), 422)


@pytest.mark.usefixtures("folder")
def test_a_sweep_that_vanishes_while_it_is_listed_is_left_out(client, monkeypatch):
    parts = client.app.state.parts
    monkeypatch.setattr(Catalog, "names", lambda _: (DONE, "gone-20250101-000000"))
    assert [row["id"] for row in client.get("/api/v1/sweeps").json()["sweeps"]] == [DONE]
    assert read._listed(parts, "gone-20250101-000000") is None


def test_rehearsals_are_listed_apart_from_points_with_the_trials_that_train_them(client, folder):
    assert client.get(f"{URL}/rehearsals").json() == {"rehearsed_on": "public rows", "planned": 0, "rehearsals": []}
    manifest = folder.read_manifest()
    search = {"search": {"objectives": ["epsilon", "accuracy", "certified@0.25"]}}
    folder.write_manifest(replace(manifest, spec=search, course=replace(manifest.course, rehearsals=3)))
    points = client.get(f"{URL}/points").json()
    config = folder.trials()["t0002"].config
    configs = [{"training": {"learning_rate": 0.5}}, config, config]
    write_rehearsals(folder, make_rehearsals((0.8, 0.5), (0.9, 0.5), (), configs=configs))
    found = client.get(f"{URL}/rehearsals").json()
    assert (found["planned"], found["rehearsed_on"]) == (3, "public rows")
    assert [(row["place"], row["configuration"], row["trials"]) for row in found["rehearsals"]] == [
        (1, "c0002", ["t0002"]),
        (2, "c0001", []),
        (None, "c0003", []),
    ]
    first, _, failed = found["rehearsals"]
    assert first["values"] == {"accuracy": pytest.approx(0.9), "certified@0.25": pytest.approx(0.5)}
    assert (first["hypervolume"], first["epoch"], failed["reason"]) == (
        pytest.approx(0.45),
        2,
        "accuracy is not a number in epoch 1",
    )
    assert client.get(f"{URL}/points").json() == points
    assert "c0002" not in client.get(f"{URL}/front").text
    assert client.get(f"{URL}/models/c0002/2").status_code == 404
