"""A picked model is checked by its papers alone, and whatever is changed in them is noticed."""

import copy
import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import yaml

from clipless.federated.primitives import Identity
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.errors import RecordError
from sweeper.federated.keys import read_key
from sweeper.papers import recomputation, stated_noise
from sweeper.papers.files import CONFIG_NAME, PAPERS, config_text, sums_of
from sweeper.papers.signature import read_public, sign_card, signer_of, write_card
from sweeper.papers.verification import read_card, verify_papers
from sweeper.privacy.card.content import AccountFacts, CardContent
from sweeper.privacy.card.make import Card
from sweeper.privacy.claims import (
    CHOSEN_POINT,
    COPIED,
    EXPLORATORY,
    FIXED_COURSE,
    FLOATING_NOISE,
    TRUSTED_MACHINE,
    AccountClaim,
)
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import OF_COPY, Price, state_unproven
from sweeper.program import program
from sweeper.store.jsonl import plain

from .conftest import score_noise_of

FILES = ("model.safetensors", *PAPERS)


def failure(folder, public=None):
    """The first thing that does not hold, ``None`` if everything does."""
    return next((check.failure for check in verify_papers(folder, public) if check.failure), None)


def leaves(value, path=()):
    """The paths of all values in JSON."""
    if isinstance(value, dict | list) and value:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))
    else:
        yield path


def changed(content, path):
    """A copy in which one value is another of its type."""
    content = copy.deepcopy(content)
    where = content
    for name in path[:-1]:
        where = where[name]
    old = where[path[-1]]
    if isinstance(old, bool) or old is None:
        where[path[-1]] = "another" if old is None else not old
    elif isinstance(old, int):
        where[path[-1]] = old + 1
    elif isinstance(old, float):
        where[path[-1]] = old * 0.999 - 1e-3
    else:
        where[path[-1]] = f"{old}x" if isinstance(old, str) else {"another": "x"}
    return content


def test_everything_holds_of_what_pick_writes(signed, call):
    checks = list(verify_papers(signed.folder / "card.json", signed.public))
    assert [check.failure for check in checks] == [""] * len(checks)
    code, out, err = call("verify", signed.folder, "--key", signed.public.hex())
    assert (code, err) == (0, "")
    for told in (
        "schema",
        "SHA256SUMS",
        f"{signed.public.hex()} has signed",
        "price of one model or all: epsilon",
        "guarantee of the training, fixed in advance: epsilon",
    ):
        assert told in out
    assert (
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=signed.folder, check=False).returncode
        == 0
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FILES)
def test_every_changed_byte_is_noticed_and_its_file_named(papers, name, call):
    whole = (papers / name).read_bytes()
    for place in sorted({0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 2, len(whole) - 1}):
        for spoiled in (bytes([whole[place] ^ 1]), b""):
            (papers / name).write_bytes(whole[:place] + spoiled + whole[place + 1 :])
            assert name in failure(papers), place
    (papers / name).write_bytes(whole + b"\n")
    code, out, err = call("verify", papers)
    assert code == 1
    assert "computed" not in out
    assert name in err
    assert err.splitlines()[-1] == f"not verified: {papers}"
    (papers / name).unlink()
    if name != "card.sig":  # without which the card is one that nobody has signed
        assert failure(papers) is not None


def unseen(folder, name, *, step, mask, fits):
    """The places at which a changed byte of a file goes unseen; where it ``fits``, SHA256SUMS has the hash of it."""
    path, found = folder / name, []
    whole = path.read_bytes()
    for place in range(0, len(whole), step):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :])
        if fits:
            (folder / "SHA256SUMS").write_text(sums_of(folder))
        found += [] if failure(folder) else [place]
    path.write_bytes(whole)
    (folder / "SHA256SUMS").write_text(sums_of(folder))
    return found


@pytest.mark.long
def test_flipped_bytes_are_noticed_from_end_to_end(papers):
    for name in FILES:
        assert unseen(papers, name, step=97, mask=0x20, fits=False) == [], name
    assert unseen(papers, "card.md", step=199, mask=0x01, fits=True) == []
    assert failure(papers) is None


@pytest.mark.long
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_noticed(papers, name):
    assert unseen(papers, name, step=1, mask=0x20, fits=False) == []  # the bit of the letter case
    if name not in ("SHA256SUMS", "card.sig"):  # which it does not have
        assert unseen(papers, name, step=1, mask=0x01, fits=True) == []


@pytest.mark.long
def test_every_field_of_a_signed_card_is_noticed_whatever_else_fits_it(papers, content, forge):
    for path in leaves(content):
        if path[0] != "files":  # which `forge` writes itself
            forge(papers, changed(content, path))
            assert failure(papers), path


@pytest.mark.parametrize("name", ["model.safetensors", "ledger.jsonl", "spec.yaml", "config.json", "data.json"])
def test_a_card_has_the_hash_of_each_file_beside_it(papers, name):
    (papers / name).write_bytes((papers / name).read_bytes() + b"\n")
    (papers / "SHA256SUMS").write_text(sums_of(papers))
    assert f"by files.{name} in" in failure(papers)


def test_a_file_without_a_hash_is_noticed(papers, content, signed):
    del content["files"]["data.json"]
    (papers / "card.json").write_text(json.dumps(content))
    (papers / "SHA256SUMS").write_text(sums_of(papers))
    sign_card(papers, signed.identity)
    assert "by files.data.json" in failure(papers)


def test_a_card_has_hashes_of_its_own_files_alone(papers, content, signed):
    content["files"]["../key"] = content["files"]["data.json"]
    (papers / "card.json").write_text(json.dumps(content))
    (papers / "SHA256SUMS").write_text(sums_of(papers))
    sign_card(papers, signed.identity)
    assert "got '../key' (files)" in failure(papers)


def test_a_field_that_stands_twice_is_noticed(papers, signed):
    path = papers / "card.json"
    path.write_text(path.read_text().replace('  "epoch": ', '  "epoch": 1,\n  "epoch": ', 1))
    (papers / "SHA256SUMS").write_text(sums_of(papers))
    sign_card(papers, signed.identity)
    assert "Expected each field once" in failure(papers)


def test_a_signature_is_by_the_key_that_is_asked_for_and_of_this_card(papers, signed, content, forge, call):
    assert signer_of(papers, signed.public) == signed.public
    other = Identity()
    assert "Expected public_key" in failure(papers, other.signing_public)
    sign_card(papers, other)
    assert failure(papers) is None
    assert "Expected public_key" in failure(papers, signed.public)
    sign_card(papers, signed.identity)
    told = [*content["public"], "A further fact."]
    forge(papers, content | {"public": told})
    assert "Expected a signature of these bytes" in failure(papers)
    (papers / "card.sig").unlink()
    assert failure(papers) is None
    forge(papers, content | {"public": told[1:]})
    assert "Expected public to state 'The number of training rows, N = " in failure(papers)
    forge(papers, content | {"public": told})
    assert "got none" in failure(papers, signed.public)
    with pytest.raises(RecordError, match=r"Expected 64 hexadecimal digits, got 'ab'.*--key"):
        read_public("ab")
    code, _, err = call("verify", papers, "--key", signed.public.hex())
    assert (code, "got none" in err) == (1, True)


def test_the_key_of_signatures_is_printed_for_readers(tmp_path, call):
    key = tmp_path / "office.key"
    _, both, _ = call("federated", "key", key)
    _, signing, _ = call("federated", "key", key, "--signing")
    assert both.splitlines() == [
        f"for a federation's file: {read_key(key).public.hex()}",
        f"for sweeper verify --key: {signing.strip()}",
    ]
    assert read_public(signing.strip()) == read_key(key).signing_public
    code, _, err = call("federated", "key", key)
    assert (code, "a key is never replaced" in err) == (2, True)


def test_pick_signs_and_says_how_to_check(ran, tmp_path, call):
    key, folder = tmp_path / "office.key", tmp_path / "out"
    _, public, _ = call("federated", "key", key, "--signing")
    code, out, _ = call("pick", ran.folder, "--output", folder, "--sign", key)
    assert code == 0
    assert f"Check it: {program()} verify {folder} --key {public.strip()}" in out
    assert signer_of(folder) == bytes.fromhex(public)


CLAIMS = [
    *(("guarantee", name) for name in ("delta", "relation", "population", "planned_epochs", "repeats", "trainings")),
    ("guarantee", "fixed_in_advance", "epsilon"),
    ("guarantee", "chosen_afterwards", "pld"),
    ("guarantee", "price", "epsilon"),
    ("exposure", "fixed_in_advance", "risk", "caught", 1),
    ("exposure", "chosen_afterwards", "groups", 2, "epsilon"),
    ("ledger", "winner", "epsilon"),
    ("ledger", "everything", "exposure", "risk", "advantage"),
    ("ledger", "front", "statement"),
    ("event", "noise_multiplier"),
    ("event", "steps"),
    ("sampling", "batch_size"),
    ("sampling", "sampling_rate"),
    ("noise", "noise_multiplier"),
    ("noise", "secure_generator"),
    ("parameters", 0, "noise_std"),
    ("parameters", 0, "sensitivity"),
    ("sensitivity_fraction",),
    ("follow_weights",),
    ("guarantee", "unit"),
    ("scores", "validation", "epsilon"),
    ("audits", 0, "epsilon"),
    ("audits", 0, "delta"),
    ("trial",),
    ("epoch",),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: ".".join(map(str, path)))
def test_a_claim_that_the_ledger_does_not_bear_is_noticed_whatever_else_fits_it(papers, content, forge, path):
    (papers / "card.sig").unlink()
    forge(papers, changed(content, path))
    assert failure(papers) is not None


@pytest.mark.parametrize(
    ("section", "name", "value", "told"),
    [
        ("training", "batch_size", 7, "sampling.batch_size = 7.0"),
        ("training", "gradient_clip_schedule", "adaptive", "clipping.kind = 'adaptive'"),
        ("privacy", "relation", "replace-one", "guarantee.relation = 'replace-one'"),
    ],
)
def test_what_the_configuration_says_of_batches_and_noise_is_what_the_card_says(content, section, name, value, told):
    config = content["config"] | {section: content["config"][section] | {name: value}}
    card = CardContent.model_validate(content | {"config": config})
    assert told in recomputation.first_difference(content, stated_noise.settings_of(card))


def test_a_card_without_noise_of_parameters_is_noticed(papers, content, forge):
    (papers / "card.sig").unlink()
    forge(papers, content | {"parameters": []})
    assert "Expected parameters with their noise, got none" in failure(papers)


def test_an_epoch_has_the_steps_of_its_rows_and_a_plan_the_epochs_of_its_configuration(papers, content, forge):
    """The own epsilon of a point follows from how many steps its epochs have."""
    (papers / "card.sig").unlink()
    steps, before = content["event"]["steps"], content["sampling"]["preliminary_steps"]
    for sampling, guarantee, told in (
        ({"steps_per_epoch": 1}, {"planned_epochs": steps - before}, "Expected sampling.steps_per_epoch = "),
        (
            {"preliminary_steps": steps - content["sampling"]["steps_per_epoch"]},
            {"planned_epochs": 1},
            "planned_epochs",
        ),
    ):
        forged = content | {
            "sampling": content["sampling"] | sampling,
            "guarantee": content["guarantee"] | guarantee,
            "epoch": 1,
        }
        forge(papers, forged)
        assert told in failure(papers)


def test_every_number_that_follows_from_the_ledger_is_compared(signed, content):
    event = PoissonGaussian.from_json(content["event"])
    ledger = Ledger(signed.folder / "ledger.jsonl")
    claims = recomputation.compute_claims(
        CardContent.model_validate(content), event, ledger, ledger.answers(1e-4, tight=True)
    )
    assert recomputation.first_difference(content, claims) is None
    assert len(list(leaves(claims))) > 90
    for path in leaves(claims):
        assert recomputation.first_difference(changed(content, path), claims) is not None, path


def test_a_price_agrees_to_its_last_shown_digit_and_within_the_rounding_of_processors():
    tolerance = recomputation.Tolerance.across_processors(1e-9, 100_000)
    assert 0.001 < tolerance.price < 0.01  # so that digits are what is refused
    for stated, computed, differs in (
        (1.2341, 1.2349, False),
        (1.2339, 1.2341, True),
        (1.2351, 1.2349, True),
        (3.0, 3.0000000000000004, True),
        (float("inf"), 3.0, True),
    ):
        told = recomputation.first_difference({"epsilon": stated}, {"epsilon": computed}, tolerance)
        assert bool(told) is differs, (stated, computed)
    tolerance = recomputation.Tolerance.across_processors(1e-5, 100)
    assert tolerance.price == 64 * 100**0.5 * 2.0**-53 / 1e-5
    for sign in (1, -1):
        for share, differs in ((0.9, False), (1.1, True)):
            other = 1.2345 * (1 + sign * share * tolerance.price)
            told = recomputation.first_difference({"epsilon": other}, {"epsilon": 1.2345}, tolerance)
            assert bool(told) is differs, (sign, share)


def test_what_is_copied_is_compared_exactly():
    tolerance = recomputation.Tolerance.across_processors(1e-9, 100_000)
    for name, value, other in (("delta", 1e-9, 1.0000000000000003e-09), ("steps", 10**9 + 1, 10**9 + 2)):
        assert recomputation.first_difference({name: other}, {name: value}, tolerance), name
        assert recomputation.first_difference({name: value}, {name: value}, tolerance) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", [("guarantee", "fixed_in_advance", "epsilon"), ("ledger", "winner", "epsilon")])
def test_a_price_less_by_a_digit_or_more_than_rounding_is_noticed(papers, content, forge, path):
    (papers / "card.sig").unlink()
    *above, last = path
    record = content
    for name in above:
        record = record[name]
    epsilon, delta = record[last], content["guarantee"]["delta"]
    steps = content["event"]["steps"] + sum(entry.planned.steps for entry in Ledger(papers / "ledger.jsonl").entries())
    allowed = 64 * steps**0.5 * 2.0**-53 / delta
    for change in (-(10 ** (math.floor(math.log10(epsilon)) - 3)), -1.1 * allowed * epsilon):
        record[last] = epsilon + change
        forge(papers, content)
        assert f"Expected {'.'.join(path)}" in failure(papers), change
    record[last] = epsilon * (1 - 0.5 * allowed)
    forge(papers, content)
    assert "differ as between processors" in [check.holds for check in verify_papers(papers)][-2]


@pytest.mark.parametrize("factor", [1 - 1e-11, 1 + 1e-8, 10.0], ids=["less", "more", "ten times"])
def test_noise_that_is_another_than_the_price_says_is_noticed(papers, content, forge, factor):
    (papers / "card.sig").unlink()
    for parameter in content["parameters"]:
        parameter["noise_std"] *= factor
    forge(papers, content)
    assert "Expected parameters with a noise multiplier" in failure(papers)


def test_a_training_that_is_almost_the_charged_one_is_noticed(papers, content, forge):
    (papers / "card.sig").unlink()
    for name in ("event", "noise"):
        content[name]["noise_multiplier"] *= 1 - 1e-9
    forge(papers, content)
    assert "Expected event.noise_multiplier" in failure(papers)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("evaluation", "exploratory", "data.evaluation"),
        ("unit", "person", "guarantee.unit"),
        ("name", "x", "data.name"),
    ],
)
def test_what_the_spec_states_of_the_data_is_what_the_card_says(papers, content, forge, field, value, told):
    (papers / "card.sig").unlink()
    spec = yaml.safe_load((papers / "spec.yaml").read_text())
    assert failure(papers) is None
    spec["data"][field] = value
    (papers / "spec.yaml").write_text(yaml.safe_dump(spec))
    forge(papers, content)
    assert f"Expected {told} = {value!r}, got" in failure(papers)


def test_a_unit_that_a_ranges_file_may_state_is_only_declared_and_is_that_of_the_public_facts(papers, content, forge):
    (papers / "card.sig").unlink()
    spec = yaml.safe_load((papers / "spec.yaml").read_text())
    spec["data"] = {"path": "digits.csv", "ranges": "digits.ranges.yaml"}
    (papers / "spec.yaml").write_text(yaml.safe_dump(spec))
    forge(papers, content)
    assert failure(papers) is None
    assert any("privacy unit 'row' is only declared" in check.holds for check in verify_papers(papers))
    content["guarantee"]["unit"] = "patient"
    forge(papers, content)
    assert "got 'patient'" in failure(papers)
    counted = f"The number of training units, N = {content['guarantee']['population']}."
    forge(papers, content | {"public": [counted, "The privacy unit is a value of column 'person' with all its rows."]})
    assert "column 'person'" in failure(papers)
    forge(papers, content | {"public": [counted, "The privacy unit is a value of column 'patient' with all its rows."]})
    assert failure(papers) is None


def with_score_noise(content, **changes):
    """A card whose scores were paid for as `paid_ledger` says, but for these changes."""
    noise = score_noise_of(content) | changes
    told = [f"{std:.3g} on {split} rows" for split, std in noise["std"].items()]
    conditions = [*content["conditions"], *told]
    return CardContent.model_validate(content | {"score_noise": noise, "conditions": conditions})


@pytest.fixture
def paid_ledger(content, tmp_path):
    ledger, event = Ledger(tmp_path / "ledger.jsonl"), PoissonGaussian.from_json(content["event"])
    ledger.open(content["trial"], event, scores=PaidScores(event=scores_event(3.0, 1, event.relation), apart=True))
    test = PaidScores(event=scores_event(4.0, 1, event.relation), apart=True)
    ledger.enter_test(content["trial"], content["epoch"], test)
    return ledger


def contradicted(card, ledger):
    """What a card says that the ledger contradicts."""
    said = recomputation.contradictions(card, card.event.to_event(), ledger, classes=2)
    return [one for one in said if one is not None]


NOISE_OF_SCORES = [
    ({"std": {"validation": 0.0015, "test": 0.01}}, "score_noise.std.validation"),
    ({"std": {"validation": 0.015, "test": 0.001}}, "score_noise.std.test"),
    ({"rows": {"validation": 1000, "test": 200}}, "score_noise.std.validation"),
    ({"apart": False}, "score_noise.apart"),
    ({"names": ["accuracy", "balanced_accuracy"]}, "score_noise.std.validation"),
    ({"epochs": [1, 2]}, "score_noise.epochs of 1 releases"),
    ({"epochs": [1]}, "score_noise.epochs spread over"),
]


@pytest.mark.parametrize(("changes", "told"), NOISE_OF_SCORES, ids=[str(one) for one, _ in NOISE_OF_SCORES])
def test_the_noise_of_scores_follows_from_what_was_charged(content, paid_ledger, changes, told):
    assert contradicted(with_score_noise(content), paid_ledger) == []
    assert told in contradicted(with_score_noise(content, **changes), paid_ledger)[0]


def test_the_noise_of_scores_is_what_the_conditions_state(content, paid_ledger):
    card = with_score_noise(content)
    silent = card.model_copy(update={"conditions": content["conditions"]})
    assert "conditions to state the noise 0.015 on validation rows" in contradicted(silent, paid_ledger)[0]


LOUD = {"std": {"validation": 5.0, "test": 5.0}, "rows": {"validation": 100, "test": 200}}
INTERVALS = [
    ({}, {"auroc": (0.0, 1.0), "accuracy": (0.45, 0.55)}, None),
    ({}, {"auroc": (0.45, 0.55)}, "auroc on test rows as wide as noise"),
    ({}, {"recall@1": (0.0, 0.99)}, "recall@1 on test rows"),
    ({"std": {"validation": 5.0, "test": 0.5}}, {"auroc": (0.45, 0.55)}, None),
    (
        {"curves": {"noise_multiplier": 4.0, "radii": 1, "two_classes": True}},
        {"auroc": (0.4, 0.5)},
        None,
    ),
]


@pytest.mark.parametrize(("changes", "intervals", "told"), INTERVALS)
def test_intervals_that_an_earlier_version_took_too_narrow_are_not_verified(
    content, paid_ledger, changes, intervals, told
):
    noisy = {"is_final": True, "released": {}, "intervals": {}, "test_released": {}, "test_intervals": intervals}
    card = with_score_noise(content | {"noisy_scores": noisy}, **LOUD | changes)
    said = [one for one in contradicted(card, paid_ledger) if "earlier version" in one]
    assert said == [] if told is None else told in said[0] and "pick the model again" in said[0]


def test_intervals_of_validation_rows_are_as_narrow_as_many_releases_leave_them(content, paid_ledger):
    noisy = {"is_final": True, "released": {}, "intervals": {"auroc": (0.3, 0.7)}}
    card = with_score_noise(content | {"noisy_scores": noisy}, **LOUD)
    assert any("auroc on validation rows" in one for one in contradicted(card, paid_ledger))
    event = PoissonGaussian.from_json(content["event"])
    many = PaidScores(event=scores_event(3.0, 30, event.relation), apart=True)
    paid_ledger.open("t0002", event, scores=many)
    assert not any("earlier version" in one for one in contradicted(card, paid_ledger))


def test_an_audit_attacked_no_larger_price_than_that_of_the_ledger(content, paid_ledger):
    price = paid_ledger.answers(1e-3, tight=True)["everything"].epsilon
    card = with_score_noise(content)
    for epsilon, count in ((price, 0), (0.5 * price, 0), (1.01 * price, 1)):
        row = {"kind": "sweep-price", "epsilon": epsilon, "delta": 1e-3, "attained": 0.0}
        audits = [row | {"confidence": 0.95, "contradicted": False}]
        told = CardContent.model_validate(card.model_dump() | {"audits": audits})
        assert len(contradicted(told, paid_ledger)) == count


CURVES = {
    "confidence": 0.95,
    "noise_multiplier": 4.0,
    "rows": 200,
    "radii": [0.0, 0.1, 0.2],
    "certified": [0.9, 0.5, 0.02],
    "certified_low": [0.75, 0.35, 0.0],
    "certified_high": [1.0, 0.65, 0.17],
    "scores": None,
}
OTHER_CURVES = [
    {"noise_multiplier": 0.05},
    {"rows": 8100},
    {"confidence": 0.5},
    {"radii": [0.0, 0.1], "certified": [0.9, 0.5], "certified_low": [0.75, 0.35], "certified_high": [1.0, 0.65]},
    {"certified_low": [0.8999, 0.35, 0.0]},
    {"certified_high": [1.0, 0.5001, 0.17]},
]


def test_released_curves_are_of_the_noise_and_rows_of_the_scores(content, paid_ledger):
    facts = {"noise_multiplier": 4.0, "radii": 3, "two_classes": False}
    std = CurveNoise(noise_multiplier=4.0, radii=(0.0,) * 3, two_classes=False, relation=Relation.ADD_OR_REMOVE_ONE)
    card = with_score_noise(content, curves=facts, std={"validation": 0.015, "test": std.count_std / 200})

    def told(**changes):
        return contradicted(CardContent.model_validate(card.model_dump() | {"curves": CURVES | changes}), paid_ledger)

    assert told() == []
    for changes in OTHER_CURVES:
        (first, *_) = told(**changes)
        assert first.startswith("Expected curves "), changes
    without = CardContent.model_validate(with_score_noise(content).model_dump() | {"curves": CURVES})
    assert "Expected curves = None without score_noise.curves, got some" in contradicted(without, paid_ledger)


def test_an_account_pays_for_the_winner_of_a_selection_alone(content, paid_ledger, monkeypatch):
    """All other trainings stay secret, so that releasing everything has no price."""
    account = AccountFacts(name="clinic", epsilon=6.0, delta=1e-4)
    card = with_score_noise(content).model_copy(update={"account": account})
    prices = {"winner": 4.0, "front": math.inf, "everything": math.inf}
    answers = {what: Price(epsilon=one, delta=1e-4, events=1) for what, one in prices.items()}
    monkeypatch.setattr(Ledger, "answers", lambda *_, **__: answers)
    monkeypatch.setattr(Ledger, "held", property(lambda _: None))
    assert recomputation._less_than_spent(card, paid_ledger) is None, "a filter states no price at a smaller delta"
    nothing = card.model_copy(update={"account": account.model_copy(update={"epsilon": 1e-3})})
    (entry,) = paid_ledger.entries()
    drawn = replace(entry, drawn=True)
    monkeypatch.setattr(Ledger, "entries", lambda _: (drawn,))
    assert "Expected account.epsilon >= " in recomputation._less_than_spent(nothing, paid_ledger), "but it has drawn"
    monkeypatch.setattr(Ledger, "held", property(lambda _: "a selection"))
    assert recomputation._less_than_spent(card, paid_ledger) is None
    small = card.model_copy(update={"account": account.model_copy(update={"epsilon": 3.9})})
    assert "Expected account.epsilon >= 4.0" in recomputation._less_than_spent(small, paid_ledger)


def test_noise_of_dp_sgd_is_that_of_the_clipping_norm(content, paid_ledger):
    card = CardContent.model_validate(with_score_noise(content).model_dump() | {"method": "dp-sgd", "clip_norm": 1.5})
    config = {**card.config, "training": {**card.config["training"], "method": "dp-sgd"}}
    std = 1.5 * content["event"]["noise_multiplier"] * (1 + 2.0**-40)

    def told(sensitivity, noise_std):
        one = {"name": "a", "sensitivity": sensitivity, "noise_std": noise_std}
        return contradicted(
            CardContent.model_validate(card.model_dump() | {"parameters": [one], "config": config}), paid_ledger
        )

    assert told(1.5, std) == []
    assert "parameters.0.noise_std" in told(1.5, 1.01 * std)[0]
    assert "parameters.0.sensitivity" in told(3.0, 2 * std)[0]


def test_the_unit_of_a_bundled_data_set_is_a_row_whatever_public_facts_say(papers, content, forge):
    (papers / "card.sig").unlink()
    content["guarantee"]["unit"] = "patient"
    counted = f"The number of training units, N = {content['guarantee']['population']}."
    forge(papers, content | {"public": [counted]})
    assert "Expected guarantee.unit = 'row', got 'patient'" in failure(papers)


@pytest.mark.parametrize("stated", [3.0, 2.5, None], ids=["charged", "less", "none"])
def test_the_noise_of_scores_is_that_of_the_ledger(content, tmp_path, stated):
    ledger, event = Ledger(tmp_path / "ledger.jsonl"), PoissonGaussian.from_json(content["event"])
    paid = PaidScores(event=scores_event(3.0, 1, event.relation), apart=True)
    ledger.open(content["trial"], event, scores=paid)
    noise = (
        None
        if stated is None
        else {
            "names": ["accuracy"],
            "noise_multiplier": stated,
            "apart": True,
            "std": {"validation": stated * 0.5 / 100, "test": 0.02},
            "rows": {"validation": 100, "test": 100},
            "epochs": [content["guarantee"]["planned_epochs"]],
            "best_of": None,
            "curves": None,
            "of_the_trial": content["guarantee"]["chosen_afterwards"],
        }
    )
    told = "" if stated is None else f"{stated * 0.5 / 100:.3g} on validation rows and 0.02 on test rows"
    conditions = [*content["conditions"], told]
    card = CardContent.model_validate(content | {"score_noise": noise, "conditions": conditions})
    said = [one for one in recomputation.contradictions(card, event, ledger) if one is not None]
    assert said == [] if stated == 3.0 else said == [f"Expected score_noise.noise_multiplier = 3.0, got {stated}"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"OMP_NUM_THREADS": "1"}, "to the last bit"),
        ({"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "8"}, "to the last bit"),
        ({"OPENBLAS_CORETYPE": "Nehalem"}, "to the last"),  # bit or digit: some machines have other kernels
        ({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F,-AVX"}, "to the last"),
    ],
    ids=str,
)
def test_what_holds_here_holds_in_another_process_and_with_the_arithmetic_of_another_processor(signed, setting, told):
    command = [sys.executable, "-c", "from sweeper.cli.main import main; main()", "verify", str(signed.folder)]
    done = subprocess.run(command, env=os.environ | setting, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout


def test_a_ledger_that_has_spent_more_is_noticed_though_its_hash_fits(papers, content, forge, event):
    Ledger(papers / "ledger.jsonl").open("t0009", event)
    (papers / "card.sig").unlink()
    forge(papers, content)
    assert "it was extended, perhaps because of them" in failure(papers)
    spec = yaml.safe_load((papers / "spec.yaml").read_text())["search"]
    told = _with_spec(papers, content, forge, search={"trials": spec["trials"] + 1})
    assert "Expected guarantee.price.epsilon" in told


def merged(one, other):
    """JSON objects, one within the other."""
    both = isinstance(one, dict) and isinstance(other, dict)
    return one | {name: merged(one.get(name), value) for name, value in other.items()} if both else other


@pytest.mark.parametrize(("attempts", "holds"), [(1, True), (2, False)])
def test_a_card_that_calls_attempts_trials_as_earlier_versions_did_is_verified(papers, content, forge, attempts, holds):
    ledger = Ledger(papers / "ledger.jsonl")
    other = next(entry for entry in ledger.entries() if entry.trial != content["trial"])
    ledger.open(other.trial, other.planned)
    card, event = CardContent.model_validate(content), PoissonGaussian.from_json(content["event"])
    prices = ledger.answers(content["guarantee"]["delta"], tight=True)
    claims = plain(recomputation.compute_claims(card, event, ledger, prices))
    content = merged(content, {name: claim for name, claim in claims.items() if name != "audits"})
    (papers / "card.sig").unlink()
    forge(papers, content)
    trials = len({entry.trial for entry in ledger.entries()})
    now = f"every training of the sweep ({trials + 1} attempts at {trials} trials)"
    assert now in content["ledger"]["winner"]["statement"]
    assert failure(papers) is None
    text = json.dumps(content).replace(now, f"every trial of the sweep ({trials + attempts})")
    forge(papers, json.loads(text))
    assert (failure(papers) is None) == holds


def test_a_price_of_nothing_known_is_noticed(papers, content, forge):
    (papers / "card.sig").unlink()
    forge(papers, content | {"ledger": {**content["ledger"], "nothing": content["ledger"]["winner"]}})
    assert "Expected ledger to answer everything, front, winner" in failure(papers)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [("delta: 0.0001", "delta: 0.001", "guarantee.delta"), ("name: digits", "name: iris", "data.name")],
)
def test_a_spec_of_something_else_is_noticed(papers, content, forge, old, new, told):
    spec = papers / "spec.yaml"
    spec.write_text(spec.read_text().replace(old, new))
    (papers / "card.sig").unlink()
    forge(papers, content)
    assert told in failure(papers)


def _with_spec(papers, content, forge, **sections):
    """Make a folder, unsigned, of a sweep of another spec; its configuration is as before."""
    path = papers / "spec.yaml"
    spec = yaml.safe_load(path.read_text())
    for name, section in sections.items():
        spec[name] |= section
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    (papers / "card.sig").unlink(missing_ok=True)
    forge(papers, content)
    return failure(papers)


def test_the_configuration_of_a_card_is_one_of_its_spec(papers, content, forge):
    size = content["config"]["training"]["batch_size"]
    drawn = {"sampler": "random"}
    assert _with_spec(papers, content, forge, training={"batch_size": [size, 2 * size]}, search=drawn) is None
    fixed = _with_spec(papers, content, forge, training={"batch_size": 2 * size})
    assert fixed.startswith(f"Expected {2 * size} by the spec as config.training.batch_size, got {size} in")
    within = _with_spec(papers, content, forge, training={"batch_size": [2 * size, 4 * size]})
    assert "as config.training.batch_size" in within
    config = {name: dict(section) for name, section in content["config"].items()}
    rate = config["training"].pop("learning_rate")
    assert _with_spec(papers, content, forge, training={"batch_size": size}) is None
    for change, told in (
        ({}, "as config.training.learning_rate, got 'nothing'"),
        ({"learning_rate": rate, "luck": 7}, "a hyperparameter of the spec as config.training.luck, got 7"),
    ):
        forged = config | {"training": config["training"] | change}
        (papers / CONFIG_NAME).write_text(config_text(forged))
        forge(papers, content | {"config": forged})
        assert told in failure(papers)


def test_names_of_values_are_those_of_configurations_where_specs_write_them_otherwise(papers, content, forge):
    """Options of an architecture or a loss stand behind its name in a spec."""
    name, size = content["config"]["model"]["architecture"], content["config"]["model"]["width"]
    model = {"architecture": [{"name": name, "width": [size, 2 * size]}, "patch-net"]}
    assert _with_spec(papers, content, forge, model=model) is None
    model["architecture"][0]["width"] = 2 * size
    told = _with_spec(papers, content, forge, model=model)
    assert f"Expected {2 * size} by the spec as config.model.width, got {size}" in told


def test_the_budget_of_a_spec_is_that_of_its_ledger(papers, content, forge):
    budget = {"sweep_epsilon": 1.0, "epsilon": None, "noise_multiplier": None}
    told = _with_spec(papers, content, forge, privacy=budget)
    assert "Expected privacy.sweep_epsilon = None in the spec, by the ledger, got 1.0" in told


def test_a_price_that_results_steer_is_marked_as_not_proven(papers, content, forge):
    size = content["config"]["training"]["batch_size"]
    steered = {"search": {"sampler": "tpe"}, "training": {"batch_size": [size, 2 * size]}}
    told = _with_spec(papers, content, forge, **steered)
    assert ".unproven = 'The price is not proven: " in told
    assert "they choose batch_size" in told
    marked = copy.deepcopy(content)
    for doubt, holds in (
        ("The price is proven, whatever batch_size was.", False),
        (state_unproven(["extended"]), False),
        (state_unproven(["batch_size"]), True),
        (state_unproven(["batch_size", "extended"]), True),
    ):
        for price in marked["ledger"].values():
            price["unproven"] = doubt
        forge(papers, marked)
        assert (failure(papers) is None) is holds, doubt
    checks = list(verify_papers(papers))
    assert not [check.failure for check in checks if check.failure]
    (price,) = (check.holds for check in checks if check.holds.startswith("price of one model"))
    assert price.endswith(marked["ledger"]["winner"]["unproven"])


def test_no_price_of_a_copy_is_stated_as_proven(papers, content, forge):
    marked = copy.deepcopy(content)
    (papers / "card.sig").unlink()
    marked["conditions"] = [COPIED, *marked["conditions"]]
    forge(papers, marked)
    told = failure(papers)
    assert f"unproven = {OF_COPY!r}, got None" in told
    for price in marked["ledger"].values():
        price["unproven"] = OF_COPY
    forge(papers, marked)
    assert failure(papers) is None


def test_no_number_of_an_exploratory_card_is_said_to_hold_without_that_mark(papers, content, forge):
    forge(papers, content | {"exploratory": True})
    (papers / "card.sig").unlink()
    stated = [check.holds for check in verify_papers(papers) if "epsilon" in check.holds]
    assert len(stated) >= 3
    assert all(one.endswith(f". {EXPLORATORY}") for one in stated)


def test_a_sweep_of_more_trials_than_its_spec_was_extended(papers, content, forge):
    fewer = _with_spec(papers, content, forge, search={"trials": 1})
    assert "Expected ledger.winner.unproven = 'The price is not proven: " in fewer
    assert "it was extended, perhaps because of them" in fewer


@pytest.mark.parametrize("left_out", [TRUSTED_MACHINE, FLOATING_NOISE, CHOSEN_POINT, FIXED_COURSE])
def test_a_card_states_the_conditions_of_its_claim(papers, content, forge, left_out):
    (papers / "card.sig").unlink()
    forge(papers, content | {"conditions": [one for one in content["conditions"] if one != left_out]})
    assert f"Expected conditions to state {left_out[:60]!r}" in failure(papers)


def test_who_answers_for_a_model_is_who_the_spec_says(papers, content, forge):
    (papers / "card.sig").unlink()
    forge(papers, content | {"deployment": {"curator": "somebody"}})
    assert "deployment" in failure(papers)


def test_an_account_that_the_spec_does_not_name_or_with_another_claim_is_noticed(papers, content, forge):
    (papers / "card.sig").unlink()
    account = AccountClaim("clinic", 6.8, 1e-5)
    told = content | {"account": asdict(account), "conditions": [*content["conditions"], account.condition]}
    forge(papers, told)
    assert "Expected account = None" in failure(papers)
    spec = papers / "spec.yaml"
    spec.write_text(spec.read_text().replace("privacy:\n", "privacy:\n  account: accounts.db#clinic\n"))
    forge(papers, told)
    assert failure(papers) is None
    small = AccountClaim("clinic", 0.01, 1e-12)
    forge(papers, told | {"account": asdict(small), "conditions": [*content["conditions"], small.condition]})
    assert "Expected account.epsilon >= " in failure(papers)
    forge(papers, told | {"account": asdict(account) | {"epsilon": 1.0}})
    assert "Expected conditions to state the claim of account" in failure(papers)
    forge(papers, content)
    assert "account" in failure(papers)


def test_the_words_of_a_card_with_an_infinite_price_are_its_own(papers, content):
    (papers / "card.sig").unlink()
    content["ledger"]["front"] |= {"epsilon": float("inf"), "events": 0}
    write_card(papers, Card(CardContent.model_validate(content)))
    assert '"Infinity"' in (papers / "card.json").read_text()
    assert "Expected ledger.front.epsilon" in failure(papers)
    assert "not released" in (papers / "card.md").read_text()
    assert read_card(papers).ledger["front"].epsilon == float("inf")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("scores", "validation", "accuracy"), "0.9", "Expected scores.validation.accuracy = 0.9, got '0.9'"),
        (("guarantee", "repeats"), True, "Expected guarantee.repeats = 1, got True"),
        (("guarantee", "population"), 1.5, "(guarantee.population)"),
        (("clipping", "kind"), "odd", "(clipping)"),
    ],
)
def test_a_value_of_another_type_is_told_by_its_field(papers, content, forge, path, value, told):
    *above, last = path
    record = content
    for name in above:
        record = record[name]
    record[last] = value
    forge(papers, content)
    assert told in failure(papers)


def test_what_is_no_card_is_told(tmp_path, call):
    code, _, err = call("verify", tmp_path)
    assert (code, "card.json" in err) == (1, True)
    (tmp_path / "card.json").write_text('{"card_version": 2}')
    assert "(card_version)" in failure(tmp_path)
