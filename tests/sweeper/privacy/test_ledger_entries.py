"""The rows of a ledger as JSON: what is written stays readable, and says no less than before."""

import pytest

from clipless.privacy.accounting.private_selection import Repetitions
from sweeper.errors import RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger_entries import (
    CloseRow,
    DrawRow,
    OpenRow,
    ScoresRow,
    SelectionRow,
    row_from_json,
    row_to_json,
)
from sweeper.privacy.selection import Terms


@pytest.fixture
def scores(event):
    return PaidScores(event=event, apart=True, kept=2)


def test_every_row_is_written_in_one_way_and_read_back(event, scores):
    terms = Terms(event=event, repetitions=Repetitions(mean=5.0))
    plan = {"event": event.to_json()}
    written = {
        OpenRow(trial="t1", attempt=1, event=event): {"record": "open", "trial": "t1", "attempt": 1} | plan,
        OpenRow(trial="t1", attempt=2, event=event, kept=3, scores=scores, drawn=False): {
            "record": "open",
            "trial": "t1",
            "attempt": 2,
            **plan,
            "kept": 3,
            "scores": scores.to_json(),
            "drawn": False,
        },
        DrawRow(trial="t1", attempt=2): {"record": "draw", "trial": "t1", "attempt": 2},
        CloseRow(trial="t1", attempt=2, steps=5): {"record": "close", "trial": "t1", "attempt": 2, "steps": 5},
        CloseRow(trial="t1", attempt=2, steps=5, scored=1): {
            "record": "close",
            "trial": "t1",
            "attempt": 2,
            "steps": 5,
            "scored": 1,
        },
        SelectionRow(terms=terms): {"record": "selection", "terms": terms.to_json()},
        ScoresRow(trial="t1", epoch=4, scores=scores): {
            "record": "test",
            "trial": "t1",
            "epoch": 4,
            "scores": scores.to_json(),
        },
    }
    for row, content in written.items():
        assert list(row_to_json(row).items()) == list(content.items())
        assert row_from_json(content) == row


@pytest.mark.parametrize("said", [True, None, 0, "false", "no"])
def test_only_false_says_that_a_training_has_not_drawn(said, event):
    row = row_from_json({"record": "open", "trial": "t1", "attempt": 1, "event": event.to_json(), "drawn": said})
    assert row.drawn


@pytest.mark.parametrize("content", [{"record": "refund", "trial": "t1", "attempt": 1}, {"trial": "t1", "attempt": 1}])
def test_a_row_of_another_kind_is_refused(content):
    with pytest.raises((RecordError, KeyError)):
        row_from_json(content)
