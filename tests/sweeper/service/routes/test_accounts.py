"""Accounts of a service: one door to the rows, in the name of the owner of a token, refused before a sweep begins."""

import dataclasses
import datetime
import io
import time
import urllib.error

import pytest

import sweeper
from clipless.privacy.events import Relation
from sweeper.account import store as store_module
from sweeper.account.account import Account
from sweeper.account.entries import Share
from sweeper.account.owner import close_account, open_account
from sweeper.account.receipts import RECEIPT_NAME, make_receipt, read_receipt
from sweeper.account.verify import verify_account
from sweeper.errors import AccountError, RecordError, SpecError, SweeperError
from sweeper.service import client as client_module
from sweeper.service.remote import connect
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.supervision import submissions
from sweeper.service.supervision import supervisor as supervisor_module
from sweeper.service.supervision.states import MOST_DEATHS
from sweeper.service.supervision.submissions import Cause, Intent
from sweeper.specification.addresses import parse_address
from tests.sweeper.account.accounts import begin_quickly, wants

from ..conftest import DONE, YAML, bearer, is_problem

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
SPEC = """\
name: small
data: {name: digits}
model: {architecture: mlp, width: 16}
training: {epochs: 60, batch_size: 256, learning_rate: {log: [0.02, 0.1]}}
privacy: {sweep_epsilon: 3, delta: 1e-5}
search: {trials: 2, rehearse: false}
"""
SMALL = SPEC.replace("sweep_epsilon: 3", "sweep_epsilon: 1")
ACCOUNT = "/api/v1/accounts/clinic"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    monkeypatch.setattr(supervisor_module, "TICK_SECONDS", 600.0)  # it ticks when a test says so


@pytest.fixture
def address(tmp_path):
    return parse_address(f"{tmp_path}/accounts.db#clinic")


def opened(address, **more):
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5}
    open_account(address, **(terms | more), by="owner", at=NOW)


@pytest.fixture
def people(tmp_path, address, serve):
    """Return what asks a service as one of several people; ann and ben have half of the account each."""
    opened(address, shares=(Share(name="ann", part=0.5), Share(name="ben", part=0.5)))
    file = tmp_path / "tokens.json"
    tokens = {name: make_token(file, Role.WRITE, 1, name) for name in ("ann", "ben", "eve")}
    tokens["reader"] = make_token(file, Role.READ, 1, "ann")
    client = serve(tokens=file, accounts={"digits": address})

    def ask(person, method, path, spec=None, **more):
        headers = bearer(tokens[person]) | (YAML if spec else {}) | more.pop("headers", {})
        return client.request(method, path, content=spec, headers=headers, **more)

    ask.client, ask.supervisor = client, client.app.state.parts.supervisor
    return ask


def submit(people, person, spec=SPEC, **more):
    return people(person, "POST", "/api/v1/sweeps", spec, **more)


def entries(address):
    return Account(address).head.number


@pytest.mark.long
def test_two_tokens_with_shares_run_four_sweeps_and_the_fifth_is_refused_with_what_would_fit(people, address, out):
    made = [submit(people, person) for person in ("ann", "ben", "ann", "ben")]
    assert [answer.status_code for answer in made] == [201] * 4
    before = entries(address), sorted(out.iterdir())
    answer = submit(people, "ann")
    assert is_problem(answer, 402, "the share of ann in account 'clinic', 50 % of its budget, has room for")
    assert (entries(address), sorted(out.iterdir())) == before, "nothing was reserved, and no folder is left"
    said = people("ann", "POST", "/api/v1/check", SPEC).json()["account"]
    assert said["refused"] == answer.json()["detail"]
    assert f"lower privacy.sweep_epsilon to {said['fits']:g}, the most that fits" in said["refused"]
    smaller, larger = (SPEC.replace("sweep_epsilon: 3", f"sweep_epsilon: {by * said['fits']}") for by in (1.0, 1.02))
    assert [submit(people, "ann", spec).status_code for spec in (larger, smaller)] == [402, 201]
    spent = {sweep.spender for sweep in Account(address).balance().sweeps.values()}
    assert spent == {"ann", "ben"}


def test_nobody_takes_of_the_share_of_another_and_who_has_none_takes_nothing(people):
    assert [submit(people, "ann").status_code for _ in range(2)] == [201, 201]
    assert is_problem(submit(people, "ann"), 402, "the share of ann in account 'clinic', 50 % of its budget, has room")
    assert is_problem(submit(people, "eve"), 402, "Expected a spender with a share of account 'clinic' (ann, ben)")
    room = people("ben", "GET", ACCOUNT).json()["room"]
    assert (room["spender"], room["left"]) == ("ben", 0.5)
    assert people("eve", "GET", ACCOUNT).json()["room"]["epsilon"] == 0.0
    assert submit(people, "ben").status_code == 201


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ("privacy: {sweep_epsilon: 3, delta: 1e-5, spender: ben}", "privacy.spender"),
        ("privacy: {sweep_epsilon: 3, delta: 1e-5, account: 'other.db#mine'}", "Expected account clinic, which the"),
        ("privacy: {sweep_epsilon: 3, delta: 1e-5, account: '/etc/passwd#mine'}", "Expected account clinic, which the"),
    ],
)
def test_a_spec_names_neither_another_spender_nor_another_account(people, address, forged, said):
    spec = SPEC.replace("privacy: {sweep_epsilon: 3, delta: 1e-5}", forged)
    assert is_problem(submit(people, "eve", spec), 422, said)
    assert entries(address) == 1


def test_a_spec_may_repeat_the_name_of_its_account_and_is_never_charged_elsewhere(people, address, out):
    spec = SPEC.replace("delta: 1e-5}", "delta: 1e-5, account: '/somewhere/else.db#clinic'}")
    name = submit(people, "ann", spec).json()["id"]
    assert read_receipt(out / name).account == str(address)


def test_data_without_an_account_are_not_charged_and_no_spec_gives_them_one(people, address):
    other = SPEC.replace("digits", "breast_cancer")
    assert submit(people, "eve", other).status_code == 201
    named = other.replace("delta: 1e-5}", "delta: 1e-5, account: 'accounts.db#clinic'}")
    assert is_problem(
        submit(people, "eve", named), 422, "Expected no account, for the operator of the service declares none"
    )
    assert entries(address) == 1


def test_data_with_an_account_are_not_selected_on_in_private(serve, address):
    opened(address)
    spec = SPEC.replace("trials: 2, rehearse: false", "selection: private")
    client = serve(accounts={"digits": address}, duration_is_seen=True)
    said = "Expected no private selection on data of account clinic"
    assert is_problem(client.post("/api/v1/sweeps", content=spec, headers=YAML), 422, said)
    assert entries(address) == 1


def test_the_driver_is_told_whose_share_it_takes_and_finds_the_reservation(people, launcher, address, out):
    name = submit(people, "ann").json()["id"]
    people.supervisor.tick()
    (arguments,) = launcher.started
    assert "--spender=ann" in arguments
    receipt = read_receipt(out / name)
    known = Account(address).balance().sweeps[receipt.sweep]
    assert (known.title, known.spender, known.is_open) == (name, "ann", True)
    assert f"account: {address}" in (out / name / "spec.yaml").read_text()
    receipt.check_against(Account(address))


def test_an_answer_that_was_lost_is_asked_for_again_although_the_account_has_no_room_left(people):
    key = {"Idempotency-Key": "one"}
    first = [submit(people, "ann", headers=key), submit(people, "ann")][0]
    again = submit(people, "ann", headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


def test_a_sweep_goes_on_only_for_who_pays_for_it(people, launcher):
    name = submit(people, "ann").json()["id"]
    people("ann", "POST", f"/api/v1/sweeps/{name}/stop")
    people.supervisor.tick()
    for path, more in (("resume", {}), ("extend", {"json": {"trials": 5}})):
        answer = people("ben", "POST", f"/api/v1/sweeps/{name}/{path}", **more)
        assert is_problem(answer, 403, f"Expected ann, in whose name {name} is charged to its account, got ben")
    for path, asked in (("enqueue", {"values": {"training.learning_rate": 0.01}}), ("steer", {"region": []})):
        answer = people("ben", "POST", f"/api/v1/sweeps/{name}/{path}", json=asked)
        assert is_problem(answer, 403, f"Expected ann, in whose name {name} is charged to its account, got ben")
        assert people("ann", "POST", f"/api/v1/sweeps/{name}/{path}", json=asked).status_code == 404, "it has not begun"
    assert people("ann", "POST", f"/api/v1/sweeps/{name}/resume").status_code == 202
    people.supervisor.tick()
    assert "--spender=ann" in launcher.started[-1]


def test_a_sweep_from_before_the_account_does_not_go_on_past_it(people, address, launcher, serve):
    people.client.__exit__(None, None, None)
    plain = serve()
    name = plain.post("/api/v1/sweeps", content=SPEC, headers=YAML).json()["id"]
    plain.__exit__(None, None, None)
    client = serve(accounts={"digits": address})
    client.app.state.parts.supervisor.tick()
    assert launcher.started == []
    assert client.get(f"/api/v1/sweeps/{name}").json()["state"] == "failed"
    assert is_problem(
        client.post(f"/api/v1/sweeps/{name}/resume"), 402, "Expected a sweep that is charged to account clinic"
    )


def test_a_store_that_was_moved_is_found_by_a_link_at_its_old_place(people, address, serve, tmp_path):
    name = submit(people, "ann").json()["id"]
    people.client.__exit__(None, None, None)
    moved = address.path.rename(tmp_path / "moved.db")
    client = serve(tokens=tmp_path / "tokens.json", accounts={"digits": parse_address(f"{moved}#clinic")})
    supervisor = client.app.state.parts.supervisor
    supervisor.tick()
    assert supervisor.status(name).reason == (
        f"Expected the store of account clinic where {name} was charged to it, got it in another place; the operator "
        "may leave a link to it there"
    )
    assert (
        Account(parse_address(f"{moved}#clinic")).balance().sweeps[read_receipt(tmp_path / "out" / name).sweep].is_open
    )
    address.path.symlink_to(moved)
    supervisor.stop(name, by="ann")
    assert not any(one.is_open for one in Account(address).balance().sweeps.values())


def test_a_sweep_that_never_began_gives_back_what_it_reserved_when_it_is_stopped_or_deleted(
    people, address, monkeypatch
):
    for gone in ("stop", "delete"):
        name = submit(people, "ann").json()["id"]
        assert people("ann", "GET", ACCOUNT).json()["taken"] > 0.2
        if gone == "stop":
            people("ann", "POST", f"/api/v1/sweeps/{name}/stop")
            people.supervisor.tick()
        else:
            with monkeypatch.context() as away:  # the store was, when the sweep was stopped
                away.setattr(supervisor_module, "release_reservation", lambda _: None)
                people.supervisor.stop(name, by="ann")
                people.supervisor.tick()
            people("ann", "DELETE", f"/api/v1/sweeps/{name}")
        assert people("ann", "GET", ACCOUNT).json()["taken"] == 0.0
    assert verify_account(address).findings == ()


def fail_to_begin(people, launcher, folder):
    """Let the driver of a submission end before it has written anything but why."""
    people.supervisor.tick()
    (folder / "failure.json").write_text('{"said": "Expected rows"}')
    launcher.alive.clear()


def settlements(address):
    account = Account(address)
    return [entry for entry in account.entries(0, entries(address)) if entry.kind == "settled"]


def taken(people):
    return people("ann", "GET", ACCOUNT).json()["taken"]


def test_a_sweep_whose_driver_cannot_begin_gives_back_what_it_reserved_once(people, address, launcher, out):
    name = submit(people, "ann").json()["id"]
    assert taken(people) > 0.2
    fail_to_begin(people, launcher, out / name)
    for _ in range(3):
        people.supervisor.tick()
    assert people("ann", "GET", f"/api/v1/sweeps/{name}").json()["state"] == "failed"
    assert taken(people) == 0.0
    people.supervisor._queue.load()
    people.supervisor._queue._settled.clear()  # as in a service that was started again
    people.supervisor.tick()
    assert len(settlements(address)) == 1
    assert verify_account(address).findings == ()


def test_a_sweep_whose_drivers_die_before_they_begin_holds_its_reservation_until_it_is_given_up(
    people, launcher, monkeypatch
):
    name, now = submit(people, "ann").json()["id"], time.time()
    monkeypatch.setattr(people.supervisor, "_clock", lambda: now)
    monkeypatch.setattr(people.supervisor._queue, "_clock", lambda: now)
    for _ in range(MOST_DEATHS):
        assert taken(people) > 0.2, "another driver may begin"
        people.supervisor.tick()
        launcher.alive.clear()
        people.supervisor.tick()
        now += 1000
    assert people("ann", "GET", f"/api/v1/sweeps/{name}").json()["state"] == "failed"
    assert taken(people) == 0.0


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_service_could_not_give_back_is_given_back_later_also_by_the_next_one(
    killed, people, address, launcher, out, monkeypatch, serve
):
    name = submit(people, "ann").json()["id"]
    fail_to_begin(people, launcher, out / name)

    def away(_):
        raise RecordError("Expected a store that answers")

    with monkeypatch.context() as broken:
        broken.setattr(supervisor_module, "release_reservation", away)
        people.supervisor.tick()
        assert submissions.read(out / name).cause is Cause.FAILED, "it is on the disk, and nothing is given back yet"
        assert taken(people) > 0.2
        if killed:
            people.client.__exit__(None, None, None)
    supervisor = people.supervisor
    if killed:
        supervisor = serve(accounts={"digits": address}).app.state.parts.supervisor
    else:
        later = time.time() + 1000
        monkeypatch.setattr(supervisor._queue.delays, "_clock", lambda: later)
    for _ in range(2):
        supervisor.tick()
    assert Account(address).balance().sweeps[read_receipt(out / name).sweep].is_open is False
    assert len(settlements(address)) == 1


def test_a_sweep_that_cannot_begin_again_reserves_and_gives_back_anew(people, address, launcher, out):
    name = submit(people, "ann").json()["id"]
    fail_to_begin(people, launcher, out / name)
    people.supervisor.tick()
    assert people("ann", "POST", f"/api/v1/sweeps/{name}/resume").status_code == 202
    people.supervisor.tick()
    receipt, account = read_receipt(out / name), Account(address)
    known = account.balance().sweeps[receipt.sweep]
    account.reserve(dataclasses.replace(account.reservation_of(receipt.sweep), costs=settlements(address)[0].returned))
    assert taken(people) > 0.2, f"what the driver of {known.title} does"
    fail_to_begin(people, launcher, out / name)
    people.supervisor.tick()
    assert taken(people) == 0.0
    assert len(settlements(address)) == 2


@pytest.mark.parametrize("trace", ["sweep.json", "ledger.jsonl", "account"])
def test_what_a_driver_has_begun_to_draw_is_not_given_back_when_it_is_given_up(trace, people, address, out):
    name = submit(people, "ann").json()["id"]
    folder, account = out / name, Account(address)
    receipt, ledger = read_receipt(folder), folder / "ledger.jsonl"
    ledger.write_text("" if trace == "ledger.jsonl" else '{"any": "row"}\n')
    account.charge(account.reservation_of(receipt.sweep), "t0001/1", {}, ledger)
    before = taken(people)
    if trace != "ledger.jsonl":
        ledger.unlink()  # lost: the account knows of it still
    if trace == "sweep.json":
        (folder / trace).write_text("odd")
    given_up = submissions.read(folder).but(intent=Intent.REST, cause=Cause.GIVEN_UP)
    people.supervisor._queue.keep(name, given_up)
    people.supervisor.tick()
    assert people("ann", "POST", f"/api/v1/sweeps/{name}/stop").status_code == 409
    assert (taken(people), settlements(address)) == (before, [])


def test_a_stop_gives_back_what_a_sweep_reserved_that_failed_before_it_began(
    people, address, launcher, out, monkeypatch
):
    name = submit(people, "ann").json()["id"]
    fail_to_begin(people, launcher, out / name)
    with monkeypatch.context() as earlier:
        earlier.setattr(supervisor_module.Supervisor, "_give_back", lambda *_: True)  # of an earlier version
        people.supervisor.tick()
        assert taken(people) > 0.2
        for _ in range(2):
            answer = people("ann", "POST", f"/api/v1/sweeps/{name}/stop")
            assert (answer.status_code, answer.json()["state"]) == (202, "failed"), "why it failed is still said"
        assert taken(people) == 0.0
    assert people("ann", "GET", f"/api/v1/sweeps/{name}").json()["trouble"] == "Expected rows"
    assert len(settlements(address)) == 1
    assert is_problem(people("ann", "POST", f"/api/v1/sweeps/{name}/trials/t0001/stop"), 409)


@pytest.mark.parametrize("exploratory", [False, True])
def test_a_warm_start_that_nobody_has_paid_for_is_refused_before_anything_is_reserved(
    exploratory, people, address, make_sweep, tmp_path
):
    folder = make_sweep(claim={"exploratory": exploratory})
    spec = SPEC.replace("trials: 2,", f"trials: 2, warm_start: {DONE},")
    asked = [people("ann", "POST", "/api/v1/check", spec), submit(people, "ann", spec)]
    if not exploratory:
        assert [answer.status_code for answer in asked] == [200, 201]
        return
    for answer in asked:
        assert is_problem(answer, 422, "Expected an earlier sweep that is not exploratory beside privacy.account")
        assert str(tmp_path) not in answer.text
    assert entries(address) == 1
    there = spec.replace(DONE, str(folder.path)).replace("delta: 1e-5", f"delta: 1e-5, account: '{address}'")
    (tmp_path / "spec.yaml").write_text(there)
    with pytest.raises(SpecError, match=r"Expected an earlier sweep that is not exploratory beside privacy\.account"):
        sweeper.check(tmp_path / "spec.yaml", measure=False)


def test_a_submission_that_a_crash_left_half_made_gives_its_reservation_back(people, address, out):
    name = submit(people, "ann").json()["id"]
    (out / name).rename(out / ".submitting-x")
    people.supervisor._queue.load()
    assert not (out / ".submitting-x").exists()
    assert Account(address).balance().taken(("all", next(iter(Account(address).balance().places()))[1])).square == 0.0


def test_who_may_only_read_sees_accounts_and_spends_nothing(people):
    submit(people, "ann")
    for path in ("/api/v1/accounts", ACCOUNT, f"{ACCOUNT}/entries", f"{ACCOUNT}/verify"):
        assert people("reader", "GET", path).status_code == 200
    assert is_problem(submit(people, "reader"), 403)
    assert is_problem(people("reader", "POST", "/api/v1/check", SPEC), 403)
    for path in (ACCOUNT, f"{ACCOUNT}/entries", "/api/v1/accounts"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert people("ann", method, path).status_code == 405, "an account is its owner's, at the command line"
    assert people.client.get(ACCOUNT).status_code == 401
    assert is_problem(
        people("reader", "GET", "/api/v1/accounts/other"), 404, "Expected an account of this service (clinic)"
    )


def test_no_answer_tells_where_the_store_lies_nor_a_digest_of_rows(people, address, tmp_path):
    submit(people, "ann")
    name = submit(people, "ben").json()["id"]
    close_account(address, because="spent", by="owner", at=NOW)
    asked = [
        people("ann", "GET", path) for path in ("/api/v1/accounts", ACCOUNT, f"{ACCOUNT}/entries", f"{ACCOUNT}/verify")
    ]
    asked += [
        submit(people, "ann"),
        people("ann", "POST", "/api/v1/check", SPEC),
        people("ann", "GET", f"/api/v1/sweeps/{name}"),
    ]
    digests = set(Account(address).balance().digests.values())
    for answer in asked:
        assert str(tmp_path) not in answer.text
        assert not any(digest in answer.text for digest in digests)


def test_entries_come_newest_first_page_by_page(people):
    submit(people, "ann")
    submit(people, "ben", SMALL)
    page = people("ann", "GET", f"{ACCOUNT}/entries?limit=2").json()
    assert [(row["number"], row["kind"], row["by"]) for row in page["entries"]] == [
        (4, "reserved", "ben"),
        (3, "reserved", "ann"),
    ]
    rest = people("ann", "GET", f"{ACCOUNT}/entries?offset=2").json()
    assert [(row["number"], row["kind"]) for row in rest["entries"]] == [(2, "bound"), (1, "opened")]
    assert page["total"] == rest["total"] == 4
    assert people("ann", "GET", f"{ACCOUNT}/entries?offset=9").json()["entries"] == []


def test_a_check_says_what_a_sweep_takes_and_what_would_be_left_and_keeps_nothing(people, address):
    found = people("ann", "POST", "/api/v1/check", SPEC).json()["account"]
    assert found["refused"] is None
    assert found["further"] == 1, "two fit into a half"
    assert found["left_behind"] == found["left"] - found["takes"]
    assert found["statement"].endswith("that is room for one more sweep like this one.")
    assert 3.0 <= found["epsilon"] < 3.1
    assert entries(address) == 1
    submit(people, "ann")
    assert people("ann", "GET", ACCOUNT).json()["taken"] == found["takes"], "to the last digit"


@pytest.mark.parametrize(
    ("accounts", "said"),
    [
        ({"nothing": "clinic"}, "Expected a data set by its registered name, or a table in --data-dir, got 'nothing'"),
        ({"digits": "clinic", "iris": "elsewhere"}, "Expected accounts of different names"),
        ({"digits": "none"}, "Expected an account of"),
    ],
)
def test_declarations_that_nobody_could_keep_are_refused_at_the_start(serve, address, accounts, said):
    opened(address)
    other = dataclasses.replace(address, store=f"{address.store}2")
    known = {"clinic": address, "elsewhere": other, "none": dataclasses.replace(address, name="none")}
    with pytest.raises(Exception, match=said):
        serve(accounts={data: known[name] for data, name in accounts.items()})


@pytest.fixture
def notebook(people, monkeypatch):
    """Connect a client of Python, as a person."""

    def connect_as(person):
        class Opener:
            def open(self, request, timeout):
                del timeout
                path = request.full_url.removeprefix("http://127.0.0.1:8000")
                more = {name: value for name, value in request.header_items() if name != "Authorization"}
                answer = people(person, request.method, path, request.data, headers=more)
                if answer.status_code >= 400:
                    raise urllib.error.HTTPError(path, answer.status_code, "", {}, io.BytesIO(answer.content))
                return io.BytesIO(answer.content)

        monkeypatch.setattr(client_module.urllib.request, "build_opener", lambda *_: Opener())
        return connect(token="any")

    return connect_as


def test_python_has_the_account_and_is_told_what_would_fit(notebook, tmp_path):
    service, spec = notebook("ann"), tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    assert service.check(spec)["account"]["further"] == 1
    for _ in range(2):
        service.submit(spec)
    with pytest.raises(
        AccountError,
        match=r"^Expected a sweep that the share of ann .* lower privacy.sweep_epsilon to .* the most that",
    ):
        service.submit(spec)
    account = service.account("clinic")
    assert list(service.accounts["name"]) == ["clinic"]
    assert list(account.entries["kind"]) == ["reserved", "reserved", "bound", "opened"]
    assert account.verify()["verified"]
    assert "49.4 % of its budget is taken, 0.622 % is left for ann" in " ".join(repr(account).split())
    with pytest.raises(SweeperError, match="Expected an account of this service"):
        service.account("other")


def test_a_sweep_that_is_deleted_gives_nothing_back_that_drew(people, address, make_sweep, out):
    folder = make_sweep()
    account, ledger = Account(address), folder.ledger
    receipt = make_receipt(folder.path, account)
    wanted = wants(receipt.sweep, title=DONE)
    account.reserve(wanted)
    ledger.write_text('{"any": "row"}\n')
    account.charge(wanted, "t0001/1", wanted.costs, ledger)
    before = Account(address).balance()
    assert people("ann", "DELETE", f"/api/v1/sweeps/{DONE}").status_code == 200
    after = Account(address).balance()
    assert [after.taken(place) for place in after.places()] == [before.taken(place) for place in before.places()]
    assert after.sweeps[receipt.sweep].drawn == before.sweeps[receipt.sweep].drawn != {}
    assert (out / "spent" / DONE / RECEIPT_NAME).is_file()
