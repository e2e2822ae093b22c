import json

import pytest

from sweeper.service.security.tokens import Role, make_token
from sweeper.specification.spec import Spec
from sweeper.specification.spec import schema as spec_schema
from sweeper.store.lock import driver_lock
from sweeper.store.requests import Requests

from ..conftest import DONE, SPEC, YAML, bearer, is_problem

URL = "/api/v1/sweeps"


def submit(client, content=SPEC, **headers):
    return client.post(URL, content=content, headers=YAML | headers)


def test_a_spec_is_submitted_and_its_sweep_can_be_read_at_once(client, launcher, out, supervisor):
    answer = submit(client)
    content = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == content["url"] == f"{URL}/{content['id']}"
    assert content["state"] == "queued"
    assert client.get(content["url"]).json()["state"] in ("queued", "starting")
    assert [row["id"] for row in client.get(URL).json()["sweeps"]] == [content["id"]]
    supervisor.tick()
    (arguments,) = launcher.started
    assert arguments[:4] == ["run", f"{out}/{content['id']}/spec.yaml", "--into", f"{out}/{content['id']}"]
    assert Spec.from_yaml(arguments[1]).name == "tiny"


def test_a_spec_may_be_json(client, content):
    answer = client.post(URL, json=content)
    assert answer.status_code == 201
    assert answer.json()["id"].startswith("digits-")


def test_the_same_key_gives_the_same_sweep_to_the_same_client_only(serve, tokens):
    client = serve(tokens=tokens[0])
    mine = bearer(tokens[1]["write"])
    first = submit(client, **mine, **{"Idempotency-Key": "k"})
    again = submit(client, **mine, **{"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert is_problem(submit(client, SPEC + "\n", **mine, **{"Idempotency-Key": "k"}), 422, "Idempotency-Key")
    other = bearer(make_token(tokens[0], Role.WRITE, 1, "ada"))
    assert submit(client, **other, **{"Idempotency-Key": "k"}).status_code == 201
    assert is_problem(submit(client, **mine, **{"Idempotency-Key": "k" * 201}), 422)
    kept = (client.app.state.parts.settings.out / first.json()["id"] / "submission.json").read_text()
    assert json.loads(kept)["key"] != "k"


def test_who_did_what_is_recorded_by_name_and_no_token_is_anywhere(serve, tokens, out, caplog):
    caplog.set_level("INFO", "sweeper")
    client, asked = serve(tokens=tokens[0]), {}
    for name in ("ada", "bob"):
        asked[name] = make_token(tokens[0], Role.WRITE, 1, f" {name} ")
    ada, bob = (bearer(token) for token in asked.values())
    made = submit(client, **ada).json()
    assert client.post(f"{made['url']}/stop", headers=bob).status_code == 202
    client.app.state.parts.supervisor.tick()
    assert client.post(f"{made['url']}/resume", headers=ada).status_code == 202
    texts = [client.get(made["url"], headers=bob).text, client.get(f"{made['url']}/actions", headers=bob).text]
    actions = json.loads(texts[1])["actions"]
    assert [(one["by"], one["kind"], one["trial"]) for one in actions] == [("bob", "stop", ""), ("ada", "resume", "")]
    assert json.loads(texts[0])["submission"]["by"] == "ada"
    assert client.get(URL, headers=bob).json()["sweeps"][0]["by"] == "ada"
    assert {record.fields["owner"] for record in caplog.records if record.getMessage() == "request"} == {"ada", "bob"}
    texts += [str(vars(record)) for record in caplog.records]
    texts += [file.read_text() for file in [tokens[0], *(out / made["id"]).iterdir()] if file.is_file()]
    for token in asked.values():
        assert not [text for text in texts if token in text or token.split("_", 2)[2] in text]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("name: tiny", 422, "(data in the submitted spec)"),
        (SPEC + "more: 1\n", 422, "more"),
        (SPEC.replace("digits", "../../etc/passwd"), 422, "registered name"),
        (SPEC.replace("tiny", "<b>"), 422, "Expected a name"),
        ("a: &a [*a]", 422, "aliases"),
        ("x: " + "[" * 1000, 422, "nested"),
        (b"\xff", 422, "UTF-8"),
        ("", 422, "got nothing"),
        ("# " + "x" * 70_000, 413, "at most 65536 bytes"),
    ],
)
def test_a_spec_that_cannot_be_run_is_refused_and_leaves_nothing(body, status, said, client, out):
    assert is_problem(submit(client, body), status, said)
    assert [path for path in out.iterdir() if not path.name.startswith(".")] == []


def test_a_body_that_does_not_say_how_long_it_is_is_counted(client):
    def parts():
        for _ in range(100):
            yield b"# " + b"x" * 1000 + b"\n"

    assert is_problem(client.post(URL, content=parts(), headers=YAML), 413, "at most 65536 bytes")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length", ["-1", "x", "99999999999999999999", "1e3", "", "70000"])
def test_a_length_that_is_none_or_too_much_is_refused_before_anything_is_read(length, client):
    assert is_problem(submit(client, **{"Content-Length": length}), 413)


def test_of_many_mistakes_an_answer_has_whole_ones_and_says_how_many_more_there_are(client, content):
    wrong = {f"wrong_{number}_{'x' * 50}": number for number in range(15)}
    answer = client.post(URL, json=content | {"training": {**content["training"], **wrong}})
    detail = json.loads(answer.content)["detail"]
    assert is_problem(answer, 422, "15 mistakes: (1) Unknown key 'wrong_0_")
    told = detail.count("Unknown key")
    assert 4 < told < 15
    assert detail.endswith(f"{detail.partition(' (2) ')[0].rpartition(';')[2]} and {15 - told} more")


def test_a_spec_of_another_kind_is_refused(client):
    assert is_problem(client.post(URL, content=SPEC, headers={"Content-Type": "text/html"}), 415, "Content-Type")
    assert is_problem(client.post(URL, content=SPEC), 415)


@pytest.mark.usefixtures("launcher")
def test_a_sweep_is_stopped_resumed_and_extended(client, make_sweep, supervisor):
    name = submit(client).json()["id"]
    assert client.post(f"{URL}/{name}/stop").json()["state"] == "stopping"
    supervisor.tick()
    assert client.get(f"{URL}/{name}").json()["state"] == "stopped"
    assert client.post(f"{URL}/{name}/resume").json() == {"id": name, "state": "queued", "url": f"{URL}/{name}"}
    make_sweep()
    answer = client.post(f"{URL}/{DONE}/extend", json={"trials": 5})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    assert client.get(f"{URL}/{DONE}").json()["submission"]["trials"] == 5
    assert is_problem(client.post(f"{URL}/{DONE}/extend", json={"trials": 6}), 409, "is queued")


def test_a_running_trial_is_stopped(client, make_sweep):
    from dataclasses import replace

    from sweeper.records import TrialStatus

    folder = make_sweep(status="running")
    folder.save_trial(replace(folder.trials()["t0002"], status=TrialStatus.RUNNING))
    with driver_lock(folder.path):
        driver = Requests(folder.path)
        assert client.post(f"{URL}/{DONE}/trials/t0002/stop").status_code == 202
        assert driver.look().trials == {"t0002": "a local user"}
        assert is_problem(client.post(f"{URL}/{DONE}/trials/t0001/stop"), 409, "running: t0002")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("body", ["{}", '{"trials": 0}', '{"trials": "5"}', '{"trials": 1.5}', '{"trials": 1e99}', "[]", "x",
                                  '{"trials": 5, "more": 1}', '{"trials": true}', '{"trials": 1000001}', ""])  # fmt: skip
def test_an_extension_is_a_number_of_trials(body, client, make_sweep):
    make_sweep()
    answer = client.post(f"{URL}/{DONE}/extend", content=body, headers={"Content-Type": "application/json"})
    assert is_problem(answer, 422)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("what", ["stop", "resume", "extend", "trials/t0001/stop"])
@pytest.mark.parametrize("name", ["none", "%2e%2e", "..%2fout", ".selecting-x", "a%00", "<b>"])
def test_only_sweeps_of_the_service_can_be_changed(name, what, client, make_sweep):
    make_sweep(".selecting-x")
    answer = client.post(f"{URL}/{name}/{what}", json={"trials": 5})
    assert answer.status_code in (404, 422)
    assert is_problem(answer, answer.status_code)


def test_what_does_not_run_cannot_be_stopped_and_says_no_path(client, make_sweep, out):
    make_sweep()
    for what in ("stop", "trials/t0001/stop"):
        answer = client.post(f"{URL}/{DONE}/{what}")
        assert is_problem(answer, 409, f"Nothing to stop: {DONE} has ended")
        assert str(out) not in answer.text
    assert is_problem(client.post(f"{URL}/{DONE}/resume"), 409, "has completed all of them")


@pytest.mark.long
def test_the_schema_of_a_spec_is_told(client):
    assert client.get("/api/v1/schema").json() == json.loads(json.dumps(spec_schema()))
