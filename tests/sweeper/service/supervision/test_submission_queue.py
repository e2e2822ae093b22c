"""What could not be done is tried again, less and less often, but for as long as it takes."""

import pytest

from sweeper.service.supervision.states import LONGEST_PAUSE_SECONDS
from sweeper.service.supervision.submission_queue import LONGEST_DELAY_SECONDS, Backoff, SubmissionQueue
from sweeper.service.supervision.submissions import Submission


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


def test_a_clock_that_is_set_back_makes_no_pause_longer_than_any(tmp_path):
    now = [1e9]
    queue = SubmissionQueue(tmp_path, lambda: now[0])
    queue._known["a"] = Submission(submitted=1.0, not_before=now[0] + LONGEST_PAUSE_SECONDS)
    assert queue.due() == []
    queue.delays.add("a")
    now[0] -= 86400.0
    assert not queue.delays.hold("a")
    assert queue.due() == ["a"]
