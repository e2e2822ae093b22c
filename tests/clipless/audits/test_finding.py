"""Findings: what they may hold, and when several of them contradict a claim."""

import json
import math

import pytest

from clipless.audits.finding import AuditKind, Finding, holm, judge
from clipless.errors import AuditError


def finding(**changes):
    values = {
        "kind": AuditKind.ONE_RUN,
        "subject": "trial 3",
        "epsilon": 3.0,
        "delta": 1e-5,
        "attained": 2.7,
        "confidence": 0.95,
        "p_value": 0.4,
        "contradicted": False,
    }
    return Finding(**{**values, **changes})


def test_the_ratio_is_the_attained_share_of_the_claim():
    assert finding().ratio == pytest.approx(0.9)
    assert math.isnan(finding(epsilon=math.inf).ratio)
    assert math.isnan(finding(epsilon=0.0).ratio)


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
def test_a_finding_travels_as_strict_json(epsilon):
    one = finding(epsilon=epsilon, evidence={"canaries": 4000, "way": "run"})
    record = json.loads(json.dumps(one.to_json(), allow_nan=False))
    assert Finding.from_json(record) == one


def test_infinite_evidence_is_written_as_text():
    record = finding(evidence={"attained sensitivity": math.inf}).to_json()
    assert json.loads(json.dumps(record, allow_nan=False))["evidence"] == {"attained sensitivity": "inf"}


@pytest.mark.parametrize(
    "changes", [{"p_value": 1.5}, {"p_value": math.nan}, {"confidence": 0.0}, {"epsilon": -1.0}, {"attained": math.nan}]
)
def test_numbers_that_no_audit_finds_are_refused(changes):
    with pytest.raises(AuditError, match="Expected"):
        finding(**changes)


@pytest.mark.parametrize("record", [{}, {"kind": "other"}, {**finding().to_json(), "more": 1}])
def test_other_records_are_refused(record):
    with pytest.raises(AuditError, match="Expected the record of a finding"):
        Finding.from_json(record)


def test_holm_compares_the_smallest_with_the_level_over_their_number():
    assert holm([0.04, 0.012, 0.2, 0.9], 0.05) == [False, True, False, False]
    assert holm([0.0126, 0.9, 0.9, 0.9], 0.05) == [False] * 4
    assert holm([0.016, 0.012, 0.024, 0.9], 0.05) == [True, True, True, False]
    assert holm([0.03, 0.012, 0.012, 0.012], 0.05) == [True] * 4
    assert holm([], 0.05) == []


def test_one_small_p_value_among_many_is_no_contradiction():
    found = judge([finding(p_value=0.02), *[finding(p_value=0.7)] * 3])
    assert not any(one.contradicted for one in found)
    assert [one.contradicted for one in judge([finding(p_value=0.0), finding(p_value=0.5)])] == [True, False]
