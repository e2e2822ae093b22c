import pytest

from sweeper.errors import RefusalError
from sweeper.service.security import limits as rates_module
from sweeper.service.security.limits import RateLimiter
from sweeper.service.settings import Limits

from ..conftest import is_problem


def test_a_client_has_a_burst_and_then_a_rate_and_others_are_not_held_up():
    now = [0.0]
    rates = RateLimiter(Limits(requests_per_second=2.0, burst=3), clock=lambda: now[0])
    for _ in range(3):
        rates.check("a")
    with pytest.raises(RefusalError, match="Expected fewer requests") as refused:
        rates.check("a")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    rates.check("b")
    now[0] = 0.5
    rates.check("a")
    with pytest.raises(RefusalError):
        rates.check("a")
    now[0] = 1000.0
    for _ in range(3):
        rates.check("a")
    with pytest.raises(RefusalError):
        rates.check("a")


def test_clients_that_are_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(rates_module, "KEPT_CLIENTS", 5)
    rates = RateLimiter(Limits(), clock=lambda: 0.0)
    for i in range(100):
        rates.check(str(i))
    assert len(rates._buckets) == 5


def test_a_client_that_asks_too_much_is_told_when_to_come_back(serve):
    client = serve(limits=Limits(requests_per_second=0.01, burst=2))
    assert [client.get("/metrics").status_code for _ in range(2)] == [200, 200]
    answer = client.get("/metrics")
    assert is_problem(answer, 429)
    assert int(answer.headers["retry-after"]) > 50
