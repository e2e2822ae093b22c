from dataclasses import dataclass, field, replace
from math import inf, isnan, nan
from typing import Annotated

import pytest

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.adapters import WHEN_KNOWN, EventValue, dump, parse, read
from sweeper.errors import RecordError
from sweeper.records import SweepStatus

EVENT = PoissonGaussian(noise_multiplier=inf, sampling_rate=0.1, steps=2, relation=Relation.ADD_OR_REMOVE_ONE)


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    status: SweepStatus = SweepStatus.RUNNING
    values: dict[str, float] = field(default_factory=dict)
    key: tuple[str, int] = ("t0001", 1)
    note: Annotated[str | None, WHEN_KNOWN] = None
    event: EventValue = EVENT


def test_a_record_is_json_values_and_back():
    row = Row(name="a", values={"epsilon": inf}, note="x", status=SweepStatus.STOPPED)
    content = dump(row)
    assert (content["status"], content["key"], content["event"]["noise_multiplier"]) == ("stopped", ["t0001", 1], "inf")
    assert content["values"] == {"epsilon": inf}
    assert parse(Row, content) == row
    assert isnan(dump(replace(row, values={"epsilon": nan}))["values"]["epsilon"])


def test_what_is_not_known_is_left_out_and_what_a_record_does_not_have_too():
    content = dump(Row(name="a"))
    assert "note" not in content
    assert parse(Row, content | {"later": 1}) == Row(name="a")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"name": 3}, "name in x"), ({"event": {"kind": "other"}}, "event in x"), ({"status": "lying"}, "status in x")],
)
def test_what_is_wrong_is_named_in_one_sentence(change, said):
    with pytest.raises(RecordError, match=said) as caught:
        read(Row, dump(Row(name="a")) | change, "in x", "restore it")
    assert str(caught.value).endswith("; restore it")
    assert "\n" not in str(caught.value)
