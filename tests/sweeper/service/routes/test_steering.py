"""What a team does to a sweep beside running it: every action, its refusals, and that none costs what it does not say."""

import json
import re
from pathlib import Path

import pytest

from sweeper.store.lock import driver_lock
from sweeper.store.notes import read_notes
from sweeper.store.requests import Requests
from sweeper.store.sweep_folder import HIDDEN

from ..conftest import DONE, SPEC, YAML, is_problem

URL = "/api/v1/sweeps"
ACTIONS = {
    "enqueue": {"values": {"training.learning_rate": 0.05}},
    "steer": {"region": ["epsilon <= 3"]},
    "trials/t0001/note": {"text": "good"},
    "trials/t0001/tag": {"key": "seen", "value": "yes"},
}
JSON = {"Content-Type": "application/json"}
QUICK_START = (Path(__file__).parents[4] / "sweeps" / "digits.yaml").read_text(encoding="utf-8")
RANGES = """\
source: codebook
table: patients.csv
target: {column: readmitted, classes: ["no", "yes"]}
columns: {age: {low: 0, high: 120}}
"""
THREE_LINES = """\
name: patients
data: {path: patients.csv, ranges: ranges.yaml}
privacy: {sweep_epsilon: 3}
"""


def test_a_spec_is_checked_and_nothing_is_kept(client, out):
    answer = client.post("/api/v1/check", content=SPEC, headers=YAML)
    said = {"name", "trials", "price", "epsilon", "delta", "account", "plan"}
    assert (answer.status_code, set(answer.json())) == (200, said)
    assert answer.json()["plan"] is None, "rows are read for those who ask"
    assert answer.json()["price"].startswith(
        "Price: the composition of 3 trials, each up to epsilon 3 at delta 0.0001, for the search and every model."
    )
    assert is_problem(client.post("/api/v1/check", content=SPEC + "more: 1\n", headers=YAML), 422, "more")
    assert [path for path in out.iterdir() if not path.name.startswith(".")] == []


@pytest.mark.long
def test_a_spec_is_planned_as_check_plans_it_where_its_data_are_here(serve):
    client = serve(allow_fetch=True)
    text = SPEC.replace("{epsilon: 3, delta: 1e-4}", "{sweep_epsilon: 2, delta: 1e-4}").replace(
        "trials: 3", "trials: 4"
    )
    plan = client.post("/api/v1/check?plan=true", content=text, headers=YAML).json()["plan"]
    assert (plan["trials"], plan["rehearsals"], plan["rows"]) == (1, 4, 1276), "four are rehearsed, one is trained"
    assert plan["price"].startswith("Price: epsilon 1.99")
    total = client.post("/api/v1/check?plan=true", content=SPEC, headers=YAML).json()["plan"]["price"]
    assert re.match(r"Price: about epsilon [3-9]\.\d+ at delta 0.0001, .* the composition of all 3 trials, if", total)
    assert plan["statement"].startswith("digits, N = 1276 training rows. 4 configurations to rehearse on public rows")
    text = SPEC.replace("name: digits}", "name: mnist}")
    answer = client.post("/api/v1/check?plan=true", content=text, headers=YAML)
    assert answer.json()["plan"] is None, "nothing is fetched to be checked"


@pytest.mark.long
def test_the_quick_start_and_a_spec_of_three_lines_are_planned(serve, tmp_path):
    (tmp_path / "ranges.yaml").write_text(RANGES)
    rows = "".join(f"{i % 90},{'yes' if i % 3 else 'no'}\n" for i in range(2000))
    (tmp_path / "patients.csv").write_text("age,readmitted\n" + rows)
    client = serve(data_dir=tmp_path)
    for text, said in (QUICK_START, "digits, N = 1276 training rows"), (THREE_LINES, "patients, N = "):
        answer = client.post("/api/v1/check?plan=true", content=text, headers=YAML)
        assert answer.status_code == 200, answer.text
        assert answer.json()["plan"]["statement"].startswith(said)


def test_a_spec_that_does_not_fit_its_data_is_refused_with_a_sentence_when_it_is_planned(client):
    text = SPEC.replace("model: {architecture: mlp, width: 16}\n", "")
    answer = client.post("/api/v1/check?plan=true", content=text, headers=YAML)
    assert is_problem(answer, 422, "Expected architecture for examples of shape (1, 8, 8)")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("privacy", "search", "said"),
    [
        ("{sweep_epsilon: 2, delta: 1e-4}", "{}", "Price: at most epsilon 2 at delta 0.0001"),
        ("{epsilon: {uniform: [1, 4]}, delta: 1e-4}", "{trials: 1}", "1 trial, up to epsilon 4 at delta"),
    ],
)
def test_the_price_of_a_spec_is_said_before_it_is_run(privacy, search, said, client):
    text = SPEC.replace("{epsilon: 3, delta: 1e-4}", privacy).replace("{trials: 3}", search)
    assert said in client.post("/api/v1/check", content=text, headers=YAML).json()["price"]


def test_a_private_selection_says_that_its_winner_alone_has_a_price(serve):
    text = SPEC.replace("{trials: 3}", "{selection: private, sampler: random}")
    answer = serve(duration_is_seen=True).post("/api/v1/check", content=text, headers=YAML)
    assert "Price: of the winner, and nothing else leaves" in answer.json()["price"]


def test_a_configuration_is_enqueued_for_the_next_trial(client, make_sweep):
    folder = make_sweep()
    answer = client.post(f"{URL}/{DONE}/enqueue", json=ACTIONS["enqueue"])
    assert (answer.status_code, answer.json()["values"]) == (202, {"training.learning_rate": 0.05})
    assert answer.json()["waits"], "the sweep has ended"
    assert Requests(folder.path).earlier == [{"training.learning_rate": 0.05}]
    for values, status in (({"training.learning_rate": 5}, 422), ({"x": 1}, 422), ({"training": {}}, 422)):
        assert is_problem(client.post(f"{URL}/{DONE}/enqueue", json={"values": values}), status)
    huge = client.post(f"{URL}/{DONE}/enqueue", content='{"values": {"training.learning_rate": 1e999}}', headers=JSON)
    assert is_problem(huge, 422)
    assert len(Requests(folder.path).earlier) == 1


def test_the_search_is_steered_and_let_go(client, make_sweep):
    folder = make_sweep()
    answer = client.post(f"{URL}/{DONE}/steer", json={"region": ["epsilon<=3.0", "accuracy >= 0.4"]})
    assert (answer.status_code, answer.json()["region"]) == (202, ["epsilon <= 3", "accuracy >= 0.4"])
    assert Requests(folder.path).region == ("epsilon <= 3", "accuracy >= 0.4")
    assert is_problem(client.post(f"{URL}/{DONE}/steer", json={"region": ["loss <= 3"]}), 422, "epsilon, accuracy")
    assert client.post(f"{URL}/{DONE}/steer", json={"region": []}).json()["region"] == []
    assert Requests(folder.path).region == ()


def test_a_trial_gets_notes_and_tags(client, make_sweep):
    folder = make_sweep()
    for text in ("good", "<b>\n better"):
        answer = client.post(f"{URL}/{DONE}/trials/t0001/note", json={"text": text})
        assert (answer.status_code, answer.json()["trial"], answer.json()["tracked"]) == (201, "t0001", False)
    assert client.post(f"{URL}/{DONE}/trials/t0001/tag", json=ACTIONS["trials/t0001/tag"]).status_code == 201
    notes = read_notes(folder.path)["t0001"]
    assert [(one.text, one.by) for one in notes.texts] == [("good", "a local user"), ("<b> better", "a local user")]
    assert [(key, one.text, one.by) for key, one in notes.tags] == [("seen", "yes", "a local user")]
    assert is_problem(client.post(f"{URL}/{DONE}/trials/t0009/note", json={"text": "x"}), 404, "t0001 to t0002")
    assert is_problem(client.post(f"{URL}/{DONE}/trials/t0001/tag", json={"key": "mlflow.x", "value": ""}), 409)
    assert str(folder.path.parent) not in client.post(f"{URL}/{DONE}/trials/t0009/note", json={"text": "x"}).text


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", "null", '{"text": 5, "key": 5, "value": 5, "region": 5, "values": 5}', '{"text": ""}',
     '{"text": "\\ud800", "key": "\\ud800", "value": "\\ud800", "region": ["\\ud800"], "values": {"\\ud800": 1}}',
     '{"values": {"training.learning_rate": NaN}}', '{"region": ["epsilon <= 1e999"]}', '{"text": "x", "more": 1}'],
)  # fmt: skip
def test_another_body_is_refused_and_nothing_is_written(body, client, make_sweep):
    folder = make_sweep()
    for what in ACTIONS:
        assert is_problem(client.post(f"{URL}/{DONE}/{what}", content=body, headers=JSON), 422), what
    assert not (folder.path / "notes.jsonl").exists()
    assert not (folder.path / "requests.jsonl").exists()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["none", "%2e%2e", "..%2fout", f"{HIDDEN}x", "a%00", "<b>"])
def test_only_sweeps_of_the_service_are_reached(name, client, make_sweep):
    folder = make_sweep(f"{HIDDEN}x")
    for what in (*ACTIONS, ""):
        method, address = ("POST", f"{URL}/{name}/{what}") if what else ("DELETE", f"{URL}/{name}")
        answer = client.request(method, address, json=ACTIONS.get(what))
        assert answer.status_code in (404, 422), what
        assert is_problem(answer, answer.status_code)
        assert folder.front.exists()


def test_a_sweep_is_deleted_and_its_ledger_is_kept(client, make_sweep, out):
    folder = make_sweep()
    folder.ledger.write_text('{"spent": 1}\n')
    answer = client.delete(f"{URL}/{DONE}")
    assert answer.json() == {"id": DONE, "state": "deleted", "kept": f"spent/{DONE}"}
    assert (out / "spent" / DONE / "ledger.jsonl").read_text() == '{"spent": 1}\n'
    assert not folder.path.exists()
    assert is_problem(client.get(f"{URL}/{DONE}"), 404)
    assert is_problem(client.delete(f"{URL}/{DONE}"), 404)


def test_what_runs_or_waits_is_not_deleted(client, make_sweep, supervisor):
    folder = make_sweep(status="running")
    with driver_lock(folder.path):
        assert is_problem(client.delete(f"{URL}/{DONE}"), 409, "is running; stop it first")
    name = client.post(URL, content=SPEC, headers=YAML).json()["id"]
    assert is_problem(client.delete(f"{URL}/{name}"), 409, "stop it first")
    client.post(f"{URL}/{name}/stop")
    supervisor.tick()
    assert client.delete(f"{URL}/{name}").json() == {"id": name, "state": "deleted", "kept": None}
    assert [row["id"] for row in client.get(URL).json()["sweeps"]] == [DONE]
    supervisor.tick()


def test_of_what_never_started_nothing_is_deleted_that_was_spent(client, out, supervisor):
    name = client.post(URL, content=SPEC, headers=YAML).json()["id"]
    client.post(f"{URL}/{name}/stop")
    supervisor.tick()
    (out / name / "ledger.jsonl").write_text("{}\n")
    assert is_problem(client.delete(f"{URL}/{name}"), 409, "never started")
    assert (out / name / "ledger.jsonl").exists()


def test_a_private_selection_that_waits_is_not_deleted_steered_or_added_to(client, make_sweep, out):
    folder = make_sweep(status="interrupted")
    manifest = json.loads((folder.path / "sweep.json").read_text())
    manifest["spec"]["search"]["selection"] = "private"
    (folder.path / "sweep.json").write_text(json.dumps(manifest))
    (out / f"{HIDDEN}{DONE}").mkdir()
    for what in ("enqueue", "steer"):
        assert is_problem(client.post(f"{URL}/{DONE}/{what}", json=ACTIONS[what]), 409, "selects privately")
    assert is_problem(client.delete(f"{URL}/{DONE}"), 409, "selects privately and has not")
    assert folder.front.exists()
