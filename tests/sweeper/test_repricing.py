"""Second prices: one curve per distinct plan, computed once, in the background."""

import threading
import time

import pytest

from clipless.errors import AccountantsDisagreeError
from clipless.privacy.accounting import pld_epsilon
from sweeper import repricing
from sweeper.records import Point
from sweeper.repricing import Repricer


@pytest.fixture
def repricer():
    made = Repricer()
    yield made
    made.close()


def wait(repricer, trial):
    while not repricer.ready(trial):
        time.sleep(0.01)


def point(epoch, epsilon):
    return Point(trial="t0001", epoch=epoch, values={"epsilon": epsilon, "accuracy": 0.5}, accountants={"rdp": epsilon})


def test_a_point_gets_the_second_price_of_its_epoch_and_keeps_the_smaller(repricer, plan_json, event):
    repricer.order("t0001", plan_json)
    wait(repricer, "t0001")
    for epoch in (1, 10):
        expected = pld_epsilon(event.with_steps(5 * epoch), 1e-4)
        dear, cheap = (repricer.reprice(point(epoch, epsilon)) for epsilon in (50.0, 0.001))
        assert dear.accountants["pld"] == cheap.accountants["pld"] == pytest.approx(expected, rel=1e-3)
        assert dear.values == {"epsilon": dear.accountants["pld"], "accuracy": 0.5}
        assert dear.accountants["rdp"] == 50.0
        assert cheap.values["epsilon"] == 0.001


def test_trials_of_one_plan_share_a_curve(repricer, plan_json, monkeypatch):
    computed = []
    monkeypatch.setattr(repricing, "_curve", lambda *key: computed.append(key) or [1.0] * 10)
    other = plan_json | {"delta": 1e-5}
    for trial, plan in (("t0001", plan_json), ("t0002", plan_json), ("t0003", other)):
        repricer.order(trial, plan)
        wait(repricer, trial)
    assert len(computed) == 2


def test_ordering_does_not_wait(repricer, plan_json, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(repricing, "_curve", lambda *_: go_on.wait(30) and [1.0] * 10)
    repricer.order("t0001", plan_json)
    assert not repricer.ready("t0001")
    go_on.set()
    wait(repricer, "t0001")


def test_accountants_that_disagree_are_told_to_whoever_asks(repricer, plan_json, monkeypatch):
    def disagree(*_):
        raise AccountantsDisagreeError("RDP 1 is below 2")

    monkeypatch.setattr(repricing, "claim", disagree)
    repricer.order("t0001", plan_json)
    wait(repricer, "t0001")
    with pytest.raises(AccountantsDisagreeError, match="RDP 1 is below 2"):
        repricer.reprice(point(1, 1.0))


def test_closing_drops_what_has_not_begun(plan_json, monkeypatch):
    go_on, computed = threading.Event(), []

    def curve(*key):
        computed.append(key)
        go_on.wait(30)
        return [1.0] * 10

    monkeypatch.setattr(repricing, "_curve", curve)
    repricer = Repricer()
    repricer.order("t0001", plan_json)
    repricer.order("t0002", plan_json | {"delta": 1e-5})
    while not computed:
        time.sleep(0.01)
    threading.Timer(0.1, go_on.set).start()
    repricer.close()
    assert len(computed) == 1
