"""The evidence of audits: what is written comes back, nothing is taken back, nothing is guessed."""

import json
from dataclasses import replace
from math import inf

import pytest

from sweeper.errors import RecordError
from sweeper.store.evidence import (
    EVIDENCE_NAME,
    WHOLE_SWEEP,
    Evidence,
    append_evidence,
    in_words,
    read_evidence,
    read_refusals,
    refusal,
)
from tests.factories import make_finding

FINDING = make_finding(subject="trial t0001, epoch 2", epsilon=3.0, delta=1e-5, attained=7.5, evidence={"pairs": 18})
ROW = Evidence(trial="t0001", finding=FINDING, found="2026-11-23T01:00:00+00:00", program="1")


def test_what_was_found_comes_back_with_infinities_too(tmp_path):
    rows = (ROW, replace(ROW, trial=WHOLE_SWEEP, finding=replace(FINDING, attained=inf)))
    append_evidence(tmp_path, rows[:1])
    append_evidence(tmp_path, rows[1:])
    assert read_evidence(tmp_path) == rows


def test_without_a_file_nothing_is_refused(tmp_path):
    assert read_evidence(tmp_path) == ()
    assert read_refusals(tmp_path) == {}


def test_a_contradiction_stays_whatever_later_audits_find(tmp_path):
    innocent = replace(ROW, finding=replace(FINDING, contradicted=False, attained=2.9))
    append_evidence(tmp_path, [innocent, ROW, innocent, replace(ROW, finding=replace(FINDING, attained=9.0))])
    assert read_refusals(tmp_path) == {
        "t0001": (
            "refused by an audit: the step audit of trial t0001, epoch 2 attained epsilon 7.5 where 3 is claimed at "
            f"delta 1e-05, 2.5 of it (evidence: line 2 of {EVIDENCE_NAME})"
        )
    }


def test_a_claim_is_never_said_to_be_less_and_what_was_attained_never_more():
    numbers = {"epsilon": 3.27449, "delta": 1 / 70001, "attained": 3.27279, "confidence": 0.95}
    finding = make_finding(**numbers, p_value=1.0, contradicted=False)
    said = in_words(finding)
    assert "attained epsilon 3.272 at 95 % confidence where 3.275 is claimed at delta 1.4285510" in said


def test_what_is_said_of_the_whole_sweep_refuses_every_trial():
    assert refusal({"t0001": "one", WHOLE_SWEEP: "all"}, "t0001") == "one"
    assert refusal({"t0001": "one", WHOLE_SWEEP: "all"}, "t0002") == "all"
    assert refusal({"t0001": "one"}, "t0002") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "Expected version 1 of evidence, got 2"),
        ({"finding": {}}, "Expected the record of a finding"),
        ({"finding": None}, "instance of Finding .finding on"),
        ({"trial": ...}, "Field required .trial on"),
    ],
)
def test_a_row_that_is_no_evidence_is_named_and_not_left_out(tmp_path, change, said):
    append_evidence(tmp_path, [ROW, ROW])
    path = tmp_path / EVIDENCE_NAME
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1] = {name: value for name, value in (rows[1] | change).items() if value is not ...}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(RecordError, match=said) as error:
        read_refusals(tmp_path)
    assert f"line 2 of {path}" in str(error.value)
