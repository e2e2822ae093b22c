"""Servers and parties over HTTP on loopback: right curves, drop-outs, and messages that somebody tampered with."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import fsum

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from clipless.datasets import InputFormat, input_format
from clipless.errors import DataError, FederationError
from clipless.federated.primitives import Identity
from clipless.testing import SeededSource
from sweeper.errors import SweeperError
from sweeper.federated import connection, serving
from sweeper.federated.evaluation import FederatedEvaluation, evaluation_lines
from sweeper.federated.federation import ANALYST
from sweeper.federated.party import probability, rows_of, take_part
from sweeper.federated.payment import Payment
from sweeper.federated.services import EVALUATE
from sweeper.federated.serving import Inbox
from sweeper.results.models.predict import load_predictor

PROTOCOLS = ["curator", "aggregation", "function-sharing"]


def joined(everybody, model, parties, names=None):
    """Everybody named takes part, each in a thread."""
    names = list(parties) if names is None else names
    with ThreadPoolExecutor(len(names)) as pool:
        running = [
            pool.submit(
                take_part,
                everybody.federation,
                name,
                everybody.identities[name],
                model,
                parties[name],
                pays(parties[name]),
            )
            for name in names
        ]
        return [one.result().bits for one in running]


def pays(data):
    """How the party of a table pays: its ledger lies beside the table."""
    return Payment(key=data.with_suffix(".key"))


def truth(model, parties):
    """Scores, labels, whether right, and radii of all rows."""
    predictor = load_predictor(model)
    frames = [predictor(predictor.form.read(path, ids=["won"])) for path in parties.values()]
    gaps = np.concatenate([(frame["score yes"] - frame["score no"]).to_numpy() for frame in frames])
    label = np.concatenate([(frame["won"] == "yes").to_numpy() for frame in frames])
    right = np.concatenate([(frame["won"] == frame["class"]).to_numpy() for frame in frames])
    radii = np.concatenate([frame["certified_radius"].to_numpy() for frame in frames])
    return probability(gaps, 1.0), label, right, radii


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "protocol", ["curator", "aggregation", pytest.param("function-sharing", marks=pytest.mark.long)]
)
def test_the_curves_over_parties_are_those_of_all_their_rows(start, model, parties, protocol):
    everybody = start(protocol, levels=12, thresholds=100)
    bits = joined(everybody, model, parties)
    found = everybody.result()
    scores, label, right, radii = truth(model, parties)
    assert found.included == tuple(parties)
    assert found.left_out == ()
    assert found.population == len(label)
    assert found.classes().auroc() == pytest.approx(roc_auc_score(label, scores), abs=0.02)
    assert found.classes().positives[-1] == label.sum()
    assert found.certified().accuracy == pytest.approx(right.mean())
    for radius, share in zip(found.certified().radii[::20], found.certified().certified[::20], strict=True):
        assert share == pytest.approx((right & (radii >= radius)).mean())
    assert min(bits) > 0
    content = json.loads(json.dumps(found.to_json()))
    assert content["accuracy"] == pytest.approx(right.mean())
    assert 0.0 <= content["auroc_interval"][0] <= content["auroc"] <= content["auroc_interval"][1] <= 1.0
    assert len(content["certified"]) == 100
    assert content["roc"][0] == {"false": 1.0, "true": 1.0}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parties_that_never_come_are_left_out_by_name(start, model, parties, protocol):
    everybody = start(protocol, wait_seconds=1.0)
    names = ["ann", "cat", "dan", "eva"]
    joined(everybody, model, parties, names)
    found = everybody.result()
    assert sorted(found.included) == names
    assert found.left_out == ("bob",)
    _, _, right, _ = truth(model, {name: parties[name] for name in names})
    assert found.certified().accuracy == pytest.approx(right.mean())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("lost", "counted"), [("reveals", True), ("words", False)])
def test_a_party_that_drops_out_after_its_words_is_still_counted_and_before_them_is_not(
    start, model, parties, monkeypatch, lost, counted
):
    everybody, honest = start("aggregation", wait_seconds=1.0), connection.Conversation.ask

    def ask(self, kind, message=b""):
        if self._channel.own == "bob" and kind == lost:
            raise SweeperError("the line is cut")
        return honest(self, kind, message)

    monkeypatch.setattr(connection.Conversation, "ask", ask)
    with pytest.raises(SweeperError, match="the line is cut"):
        joined(everybody, model, parties)
    found = everybody.result()
    assert found.left_out == (() if counted else ("bob",))
    _, label, _, _ = truth(model, {name: path for name, path in parties.items() if counted or name != "bob"})
    assert found.classes().positives[-1] == label.sum()


def test_too_few_parties_give_no_result_and_are_told_who_is_missing(start, model, parties):
    everybody = start("aggregation", wait_seconds=0.5)
    with pytest.raises(FederationError, match="Expected 3 parties or more after keys, got 2; absent: cat, dan, eva"):
        joined(everybody, model, parties, ["ann", "bob"])
    with pytest.raises(FederationError, match="absent: cat, dan, eva"):
        everybody.result()


@pytest.mark.parametrize("protocol", ["curator", "function-sharing"])
def test_nobody_gives_no_result(start, protocol):
    with pytest.raises((FederationError, SweeperError), match="Expected rows of some party, got none"):
        start(protocol, wait_seconds=0.2).result()


@pytest.mark.long
def test_keys_are_evaluated_after_their_parties_went_offline_and_within_epsilon(start, model, parties):
    everybody = start("function-sharing")
    joined(everybody, model, parties)
    everybody.result()
    question = {"release": 0, "thresholds": [1, 2], "epsilon": 200.0, "parties": ["ann"]}
    with pytest.raises(FederationError, match=r"Expected queries of epsilon 200 in all, got 200 beyond 200"):
        everybody.connection(ANALYST).ask(EVALUATE, json.dumps(question).encode())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", ["curator", "function-sharing", "aggregation"])
def test_a_result_that_is_asked_for_again_is_the_same(start, model, parties, protocol):
    everybody = start(protocol, epsilon=1.0)
    joined(everybody, model, parties)
    first, second = everybody.result(), everybody.result()
    for curve in ("roc", "certified"):
        assert (first.sums[curve][1].counts == second.sums[curve][1].counts).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_releases_spend_epsilon_together_and_carry_the_noise_of_the_protocol(start, model, parties, protocol):
    everybody = start(protocol, epsilon=3.0, colluding=1 if protocol == "aggregation" else 0)
    joined(everybody, model, parties)
    found = everybody.result()
    assert fsum(release.query.epsilon for release, _ in found.sums.values()) <= 3.0
    copies = {"curator": 1.0, "aggregation": 5 / 3, "function-sharing": 2.0}[protocol]
    for _, sums in found.sums.values():
        assert float(sums.mechanism.power) == pytest.approx(copies)
        assert sums.mechanism.epsilon == 1.5
    assert "3-differentially private" in found.statement
    true = truth(model, parties)[1].sum()
    assert found.classes().positives[-1] != true or found.classes().negatives[-1] != 300 - true


# Who is not let in


def post(url, content):
    request = urllib.request.Request(url, data=content, method="POST")
    with pytest.raises(urllib.error.HTTPError) as told, urllib.request.urlopen(request, timeout=30):
        pass
    with told.value as answer:
        return answer.code, json.loads(answer.read())["detail"]


def counts(everybody):
    return bytes(4 * sum(release.query.size for release in everybody.federation.releases))


def test_a_message_that_is_sent_again_is_refused_by_name(start):
    everybody = start("curator")
    end = everybody.connection("ann")
    sealed = end._channel.seal("counts", counts(everybody))
    url = f"{end.url}/{end._nonce.hex()}/ann/counts"
    with urllib.request.urlopen(urllib.request.Request(url, data=sealed, method="POST"), timeout=30) as answer:
        assert answer.status == 200
    code, detail = post(url, sealed)
    assert (code, detail) == (400, "Party 'ann': Expected its next message 'counts', got one that is repeated")


def test_a_message_to_an_earlier_process_of_the_server_is_refused(start):
    everybody = start("curator")
    end = everybody.connection("ann")
    other = start("curator", parties=[party.model_dump() for party in everybody.federation.parties])
    assert other.federation.servers[0].url != end.url
    sealed = end._channel.seal("counts", counts(everybody))
    _, detail = post(f"{other.federation.servers[0].url}/{end._nonce.hex()}/ann/counts", sealed)
    assert detail == "Party 'ann': Expected a conversation that this server began, got another"


def test_every_server_process_draws_a_session_of_its_own(start):
    federation = start("curator").federation
    key = Identity()
    content = federation.model_dump()
    content["servers"][0]["key"] = key.public.hex()
    changed = type(federation).model_validate(content)
    inboxes = Inbox(changed, "s0", key), Inbox(changed, "s0", key)
    assert len({inbox.begin()[start:][:16] for inbox in inboxes for start in (0, 16)}) == 4


def test_a_message_of_one_conversation_is_none_of_another(start):
    everybody = start("curator")
    first, second = everybody.connection("ann"), everybody.connection("ann")
    sealed = first._channel.seal("counts", counts(everybody))
    _, detail = post(f"{second.url}/{second._nonce.hex()}/ann/counts", sealed)
    assert detail == "Party 'ann': Expected its sealed message 'counts', got one that it did not make"


def test_conversations_that_nobody_uses_give_way_to_others(start, monkeypatch):
    """Anybody may begin some, and would otherwise fill the server's memory or end it."""
    monkeypatch.setattr(serving, "_MOST_UNUSED", 2)
    everybody = start("curator")
    used, oldest, kept, last = (everybody.connection("ann"), *(everybody.connection("bob") for _ in range(3)))
    with pytest.raises(FederationError, match="Expected a conversation that this server began, got another"):
        used.ask("counts", counts(everybody))
    with pytest.raises(FederationError, match="Expected a conversation that this server began, got another"):
        oldest.ask("counts", counts(everybody))
    kept.ask("counts", counts(everybody))
    for _ in range(3):
        everybody.connection("cat")
    with pytest.raises(FederationError, match="Party 'bob': Expected its counts once"):
        kept.ask("counts", counts(everybody))
    with pytest.raises(FederationError, match="Expected a conversation that this server began, got another"):
        last.ask("counts", counts(everybody))


def test_a_nonce_of_the_server_is_of_one_conversation(start):
    everybody = start("curator")
    end = everybody.connection("ann")
    for nonce in (end._nonce[:16], end._nonce[:-1], end._nonce + b"x"):
        _, detail = post(f"{end.url}/{nonce.hex()}/ann/counts", b"x")
        assert detail == "Party 'ann': Expected a conversation that this server began, got another"
    end.ask("counts", counts(everybody))
    for nonce, name in ((end._nonce[:16] + bytes(16), "ann"), (end._nonce, "bob")):
        _, detail = post(f"{end.url}/{nonce.hex()}/{name}/counts", b"x")
        assert detail == f"Party '{name}': Expected a conversation that this server began, got another"


@pytest.mark.parametrize("protocol", ["curator", "function-sharing"])
def test_answers_that_were_recorded_are_none_later(start, model, parties, monkeypatch, protocol):
    """Whoever sits on the line, without any key, answers with what the server said in an earlier conversation."""
    everybody, recorded = start(protocol, wait_seconds=0.5, curves=["certified"]), {}
    joined(everybody, model, parties, ["ann"])
    honest = connection._fetch

    def recording(request, server, timeout):
        about = server, request.full_url.rsplit("/", 1)[-1]
        if about not in recorded:
            recorded[about] = honest(request, server, timeout)
        return recorded[about]

    monkeypatch.setattr(connection, "_fetch", recording)
    everybody.result()
    assert len(recorded) >= 2
    with pytest.raises(FederationError, match=r"Party 's0': Expected its sealed message '(result|held)'"):
        everybody.result()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda body: body[:-1], "one that it did not make"),
        (lambda body: body[:-1] + bytes([body[-1] ^ 1]), "one that it did not make"),
        (lambda _: b"", "one that it did not make"),
        (lambda body: body + bytes(2**21), "one that is far too long"),
    ],
    ids=["cut", "altered", "empty", "too long"],
)
def test_a_malformed_message_is_refused_and_the_right_one_still_taken(start, change, sentence):
    everybody = start("curator")
    end = everybody.connection("ann")
    sealed = end._channel.seal("counts", counts(everybody))
    code, detail = post(f"{end.url}/{end._nonce.hex()}/ann/counts", change(sealed))
    assert code == 400
    assert sentence in detail
    with urllib.request.urlopen(f"{end.url}/{end._nonce.hex()}/ann/counts", data=sealed, timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("name", ["eve", "s0"])
def test_a_stranger_is_refused(start, name):
    everybody = start("curator")
    end = everybody.connection("ann")
    _, detail = post(f"{end.url}/{end._nonce.hex()}/{name}/counts", b"x")
    assert f"Expected a party of the federation, got '{name}'" in detail


def test_a_party_with_another_key_is_refused(start, model, parties):
    everybody = start("curator")
    with pytest.raises(SweeperError, match="Expected the private key of 'ann', got another one"):
        take_part(everybody.federation, "ann", Identity(), model, parties["ann"], pays(parties["ann"]))
    with pytest.raises(FederationError, match="Party 'ann': Expected its sealed message"):
        everybody.connection("ann", identity=Identity()).ask("counts", counts(everybody))


def test_a_server_that_is_another_is_found_out(start, model, parties):
    everybody, other = start("curator"), start("curator")
    url = other.federation.servers[0].url
    server = everybody.federation.servers[0].model_copy(update={"url": url})
    everybody.federation = everybody.federation.model_copy(update={"servers": [server]})
    with pytest.raises(FederationError, match="one that it did not make"):
        take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], pays(parties["ann"]))


@pytest.mark.parametrize("change", [{"epsilon": 1.0}, {"thresholds": 10}, {"relation": "replace-one"}, {"radius": 2.0}])
def test_a_party_whose_file_says_something_else_is_not_counted(start, model, parties, change):
    everybody = start("curator")
    everybody.federation = everybody.federation.model_copy(update=change)
    with pytest.raises(FederationError, match="Party 'ann': Expected its sealed message"):
        take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], pays(parties["ann"]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_party_is_not_told_the_result_and_the_analyst_sends_no_rows(start, protocol):
    everybody = start(protocol)
    for kind in ("result", "held", "evaluate"):
        with pytest.raises(FederationError, match="Party 'ann': Expected a message that it may send"):
            everybody.connection("ann").ask(kind)
    for kind in ("counts", "keys", "upload"):
        with pytest.raises(FederationError, match="Party 'analyst': Expected a message that it may send"):
            start(protocol).connection(ANALYST).ask(kind)


def test_malformed_counts_are_named_in_the_result(start, model, parties):
    everybody = start("curator", wait_seconds=0.5)
    with pytest.raises(FederationError, match="Party 'bob': Expected 69 counts, got 3 bytes"):
        everybody.connection("bob").ask("counts", b"abc")
    joined(everybody, model, parties, ["ann"])
    found = everybody.result()
    assert found.left_out == ("bob", "cat", "dan", "eva")
    assert found.refused == {"bob": "Party 'bob': Expected 69 counts, got 3 bytes"}


@pytest.mark.parametrize("again", [False, True], ids=["made up", "repeated"])
def test_a_stranger_has_no_party_named_as_refused(start, model, parties, again):
    """Whoever has no key can send what no party made, or what one did once more."""
    everybody = start("curator", wait_seconds=0.5)
    end = everybody.connection("bob")
    sealed = end._channel.seal("counts", counts(everybody)) if again else b"x" * 80
    url = f"{end.url}/{end._nonce.hex()}/bob/counts"
    if again:
        urllib.request.urlopen(urllib.request.Request(url, data=sealed, method="POST"), timeout=30).close()
    code, _ = post(url, sealed)
    assert code == 400
    joined(everybody, model, parties, ["ann"])
    found = everybody.result()
    assert found.included == (("ann", "bob") if again else ("ann",))
    assert found.refused == {}


def test_malformed_keys_are_named_in_the_result(start, model, parties):
    everybody = start("function-sharing")
    with pytest.raises(FederationError, match="Party 'bob': Expected 60 keys, got 0"):
        everybody.connection("bob").ask("upload", b"")
    joined(everybody, model, parties, ["ann"])
    found = everybody.result()
    assert found.included == ("ann",)
    assert "Expected 60 keys, got 0" in found.refused["bob"]


def test_a_query_that_is_none_is_refused(start):
    end = start("function-sharing").connection(ANALYST)
    for nothing in (b"{}", b"[" * 100_000):
        with pytest.raises(FederationError, match="Expected a query, got something else"):
            end.ask("evaluate", nothing)


def test_more_rows_than_were_declared_leave_nothing_on_the_line(start, model, parties):
    everybody = start("curator", parties=[{"name": "ann", "rows": 59}])
    with pytest.raises(DataError, match="Expected 59 rows at most of 'ann'"):
        take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], pays(parties["ann"]))


def test_labels_that_the_model_does_not_know_are_refused(start, model, parties):
    everybody = start("curator")
    path = parties["ann"]
    path.write_text(path.read_text().replace("yes", "perhaps", 1))
    with pytest.raises(DataError, match="Expected one label for each row"):
        rows_of(everybody.federation, load_predictor(model), path)


def test_a_label_that_nobody_declared_is_the_class_that_training_takes_for_it(start, model, parties, tmp_path):
    (tmp_path / "ranges.yaml").write_text(
        (model / "ranges.yaml").read_text().replace('"yes"]', '"yes"], unknown: "no"'), encoding="utf-8"
    )
    form = input_format(str(parties["cat"]), ranges=str(tmp_path / "ranges.yaml"))
    known = load_predictor(model)
    lenient = replace(known, form=InputFormat.from_json(form.to_json(), "here"))
    federation = start("curator", parties=[{"name": "ann", "rows": 60}]).federation
    *lines, last = parties["ann"].read_text().splitlines()
    found = []
    for label in ("maybe", "no"):
        parties["ann"].write_text("\n".join([*lines, f"{last.rpartition(',')[0]},{label}", ""]))
        found.append(rows_of(federation, lenient, parties["ann"]))
        if label == "maybe":
            with pytest.raises(DataError, match=r"Expected one label for each row of .*, out of no, yes, got others"):
                rows_of(federation, known, parties["ann"])
    for maybe, no in zip(*found, strict=True):
        assert (maybe.places.tolist(), maybe.groups.tolist()) == (no.places.tolist(), no.groups.tolist())


def test_what_the_declarations_do_not_know_keeps_no_party_away(start, model, parties):
    """The others see who takes part: a category or a text that nobody declared is encoded as in training."""
    everybody = start("curator")
    path = parties["ann"]
    header, first, *rest = path.read_text().splitlines()
    *cells, label = first.split(",")
    path.write_text("\n".join([header, ",".join([*["unheard-of"] * len(cells), label]), *rest]) + "\n")
    found = rows_of(everybody.federation, load_predictor(model), path)
    assert [len(own) for own in found] == [len(rest) + 1] * len(found)


def with_people(path, sizes, seed=0):
    """Give the rows of a table to people, in any order."""
    header, *rows = path.read_text().splitlines()
    people = [f"p{person}" for person, size in enumerate(sizes) for _ in range(size)]
    np.random.default_rng(seed).shuffle(people)
    path.write_text("\n".join([f"{header},person", *map(",".join, zip(rows, people, strict=True))]) + "\n")
    return people


@pytest.mark.parametrize("size", [1, 2, 9, 40])
def test_a_unit_counts_one_of_its_rows_in_every_release(start, model, parties, size):
    everybody = start("curator", unit="person")
    path = parties["ann"]
    with_people(path, [size, *[1] * (60 - size)])
    whole = rows_of(everybody.federation, load_predictor(model), path, SeededSource(0))
    assert [len(own) for own in whole] == [61 - size] * 2
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.endswith(",p0")) + "\n")
    fewer = rows_of(everybody.federation, load_predictor(model), path, SeededSource(0))
    for release, one, other in zip(everybody.federation.releases, whole, fewer, strict=True):
        moved = release.query.counts(one) - release.query.counts(other)
        assert np.abs(moved).max() <= 1
        assert sum(np.abs(np.diff(row, prepend=0)).sum() for row in np.atleast_2d(moved)) <= 1


@pytest.mark.long
def test_which_row_of_a_unit_counts_is_drawn_anew(start, model, parties):
    everybody = start("curator", unit="person")
    with_people(parties["ann"], [30, 30])
    drawn = {
        tuple(rows_of(everybody.federation, load_predictor(model), parties["ann"])[1].places.tolist())
        for _ in range(20)
    }
    assert len(drawn) > 5


def test_a_row_without_a_unit_is_refused(start, model, parties):
    everybody = start("curator", unit="person")
    with_people(parties["ann"], [30, 30])
    text = parties["ann"].read_text().splitlines()
    text[4] = text[4].rpartition(",")[0] + ",NA"
    parties["ann"].write_text("\n".join(text) + "\n")
    with pytest.raises(DataError, match="The unit of row 4 is missing"):
        rows_of(everybody.federation, load_predictor(model), parties["ann"])


def test_units_are_counted_and_named_where_they_are_protected(start):
    content = start("curator", unit="person").federation
    found = FederatedEvaluation(content, {}, ("ann", "bob"))
    assert "for each value of 'person' with all its rows at one party" in found.statement
    assert "120 units as declared" in next(evaluation_lines(found))


def test_a_server_that_is_not_there_is_named(start, model, parties):
    everybody = start("curator")
    server = everybody.federation.servers[0].model_copy(update={"url": "http://127.0.0.1:9"})
    everybody.federation = everybody.federation.model_copy(update={"servers": [server]})
    with pytest.raises(SweeperError, match=r"Cannot reach the server 's0' at http://127\.0\.0\.1:9/session"):
        take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], pays(parties["ann"]))


def test_the_statement_names_towards_whom_it_holds(start):
    for protocol, words in (
        ("curator", "trusted the curator"),
        ("aggregation", "towards the server and any 2 parties together"),
        ("function-sharing", "the two servers do not collude"),
    ):
        federation = start(protocol, colluding=2 if protocol == "aggregation" else 0).federation
        assert words in FederatedEvaluation(federation, {}, ("ann",)).statement
