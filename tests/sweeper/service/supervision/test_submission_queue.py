"""What could not be done is tried again, less and less often, but for as long as it takes."""

import pytest

from sweeper.service.supervision.submission_queue import LONGEST_DELAY_SECONDS, Backoff


def test_each_thing_is_tried_again_after_pauses_that_grow_up_to_a_limit():
    now = [100.0]
    delays, pauses = Backoff(lambda: now[0]), []
    assert not delays.hold("a")
    for _ in range(2000):
        delays.add("a")
        assert delays.hold("a")
        before = now[0]
        while delays.hold("a"):
            now[0] += 1.0
        pauses.append(now[0] - before)
    assert pauses[:4] == [2.0, 8.0, 32.0, LONGEST_DELAY_SECONDS]
    assert set(pauses[4:]) == {LONGEST_DELAY_SECONDS}
    assert not delays.hold("b")


@pytest.mark.parametrize("times", [1, 5])
def test_what_was_done_begins_with_the_shortest_pause(times):
    now = [0.0]
    delays = Backoff(lambda: now[0])
    for _ in range(times):
        delays.add("a")
    delays.forget("a")
    delays.forget("none")
    assert not delays.hold("a")
    delays.add("a")
    now[0] = 2.0
    assert not delays.hold("a")
