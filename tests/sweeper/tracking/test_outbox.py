import threading
import time

import pytest

from sweeper.store.jsonl import JsonlFile
from sweeper.tracking import outbox
from sweeper.tracking.outbox import Outbox, Undelivered, ahead_of, stored_rows

PATIENCE_SECONDS = 300.0  # ends a test that hangs; no test takes so long
HEADER = {"op": "sweep", "name": "digits"}


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(outbox, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 0.02)


class Receiver:
    """Takes rows, unless it is down."""

    def __init__(self, down=False):
        self.down = down
        self.rows = []
        self.calls = 0

    def deliver(self, rows):
        self.calls += 1
        if self.down:
            raise ConnectionError("nobody\nthere")
        self.rows += rows


def rows(start, stop):
    return [{"number": number} for number in range(start, stop)]


def opened(receiver, path, **options):
    box = Outbox(receiver.deliver, path, HEADER, **options)
    box.start()
    return box


def put(box, some):
    for row in some:
        box.put(row)


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_rows_arrive_in_order_and_no_file_is_left(tmp_path):
    receiver = Receiver()
    box = opened(receiver, tmp_path / "spool.jsonl")
    put(box, rows(0, 100))
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.01), (0.5, 5.0), (60.0, 20.0)])
def test_the_longer_a_delivery_takes_the_longer_it_leaves_the_processor_to_trials(tmp_path, took, pause):
    now, pauses = [0.0], []

    def deliver(_rows):
        now[0] += took

    box = Outbox(deliver, tmp_path / "spool.jsonl", HEADER, clock=lambda: now[0])
    put(box, rows(0, 1))
    box._closing.wait = lambda seconds: pauses.append(seconds) or box._closing.set()
    box.start()
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert pauses[0] == pytest.approx(pause)


def test_rows_are_withdrawn_unless_others_wait_before_them(tmp_path):
    path, receiver = tmp_path / "spool.jsonl", Receiver()
    box = Outbox(receiver.deliver, path, HEADER)
    put(box, rows(0, 3))
    box.withdraw()
    put(box, rows(3, 6))
    box.start()
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert (receiver.rows, list(tmp_path.iterdir())) == ([], [])
    put(Outbox(receiver.deliver, path, HEADER), rows(0, 3))  # of a driver that was killed
    box = Outbox(receiver.deliver, path, HEADER)
    put(box, rows(3, 6))
    box.withdraw()
    box.start()
    box.close(PATIENCE_SECONDS)
    assert receiver.rows == rows(0, 6)


def test_rows_that_nobody_takes_wait_in_a_file(tmp_path):
    path = tmp_path / "spool.jsonl"
    box = opened(Receiver(down=True), path)
    put(box, rows(0, 3))
    assert box.close(PATIENCE_SECONDS) == Undelivered(3, path, "ConnectionError: nobody there")
    assert JsonlFile(path).read() == [HEADER, *rows(0, 3)]
    assert stored_rows(path) == rows(0, 3)


def test_when_the_receiver_comes_back_everything_arrives_in_order(tmp_path):
    receiver = Receiver(down=True)
    path = tmp_path / "spool.jsonl"
    box = opened(receiver, path)
    put(box, rows(0, 3))
    wait_for(lambda: receiver.calls > 2)
    put(box, rows(3, 6))
    receiver.down = False
    wait_for(lambda: len(receiver.rows) == 6)
    put(box, rows(6, 9))
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 9)
    assert not path.exists()


class Clock:
    """Stands still unless it is moved, and knows how often it was asked."""

    def __init__(self):
        self.now, self.asked = 0.0, 0

    def __call__(self):
        self.asked += 1
        return self.now


def test_it_asks_less_and_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 2.0)
    clock, receiver, calls = Clock(), Receiver(down=True), []
    box = opened(receiver, tmp_path / "spool.jsonl", clock=clock)
    box.put({})
    for now in range(40):
        clock.now, before = float(now), clock.asked
        wait_for(lambda: clock.asked >= before + 3)  # noqa: B023 - it has looked and may have tried
        calls.append(receiver.calls)
    box.close(PATIENCE_SECONDS)
    assert [now for now in range(1, 40) if calls[now] > calls[now - 1]] == [2, 6, 14, 30]


def test_closing_is_one_more_try_without_a_pause(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 1000)
    receiver = Receiver(down=True)
    box = opened(receiver, tmp_path / "spool.jsonl")
    put(box, rows(0, 3))
    wait_for(lambda: receiver.calls == 1)
    receiver.down = False
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 3)


def test_rows_left_by_an_earlier_run_are_delivered_first(tmp_path):
    path = tmp_path / "spool.jsonl"
    box = opened(Receiver(down=True), path)
    put(box, rows(0, 3))
    box.close(PATIENCE_SECONDS)
    receiver = Receiver()
    again = opened(receiver, path)
    put(again, rows(3, 5))
    assert again.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 5)


def test_a_receiver_that_hangs_holds_nobody_up_and_loses_nothing(tmp_path):
    path = tmp_path / "spool.jsonl"
    hanging, release = threading.Event(), threading.Event()

    def deliver(_rows):
        hanging.set()
        release.wait(PATIENCE_SECONDS)

    box = Outbox(deliver, path, HEADER)
    box.put({"number": 0})
    box.start()
    assert hanging.wait(PATIENCE_SECONDS)
    put(box, rows(1, 3))
    assert box.close(0.05) == Undelivered(3, path, "no answer within 0.05 seconds")
    release.set()
    wait_for(lambda: not box._thread.is_alive())
    assert stored_rows(path) == rows(0, 3)
    assert box.close(PATIENCE_SECONDS).rows == 3


def test_a_receiver_that_hangs_on_waiting_rows_does_not_double_them(tmp_path):
    path = tmp_path / "spool.jsonl"
    calls, hanging, release = [], threading.Event(), threading.Event()

    def deliver(some):
        calls.append(some)
        if len(calls) == 1:
            raise ConnectionError("nobody there")
        hanging.set()
        release.wait(PATIENCE_SECONDS)

    box = Outbox(deliver, path, HEADER)
    put(box, rows(0, 2))
    box.start()
    assert hanging.wait(PATIENCE_SECONDS)
    assert box.close(0.05).rows == 2
    release.set()
    assert stored_rows(path) == rows(0, 2)


def test_with_a_full_disk_rows_wait_in_memory(tmp_path):
    receiver = Receiver(down=True)
    path = tmp_path / "full" / "spool.jsonl"
    box = opened(receiver, path)
    put(box, rows(0, 3))
    wait_for(lambda: receiver.calls == 1)
    receiver.down = False
    put(box, rows(3, 4))
    path.parent.mkdir()  # there is room again
    put(box, rows(4, 5))
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 5)


@pytest.mark.parametrize("name", ["spool", "spool-ahead"])
def test_a_broken_file_is_set_aside_and_named(tmp_path, name):
    broken, aside = b'what\n{"op": "sweep"}\n', [tmp_path / f"{name}-broken{number}.jsonl" for number in (1, 2)]
    for kept in aside:
        (tmp_path / f"{name}.jsonl").write_bytes(broken)
        receiver = Receiver()
        box = opened(receiver, tmp_path / "spool.jsonl")
        (said,) = box.set_aside
        assert f"line 1 of {tmp_path / name}.jsonl" in said
        assert f"kept in {kept}, and not delivered" in said
        put(box, rows(0, 3))
        assert box.close(PATIENCE_SECONDS) == Undelivered()
        assert receiver.rows == rows(0, 3)
    assert [kept.read_bytes() for kept in aside] == [broken] * 2
    assert sorted(tmp_path.iterdir()) == aside


def test_an_outbox_goes_on_when_its_file_breaks_or_vanishes_meanwhile(tmp_path):
    path, receiver = tmp_path / "spool.jsonl", Receiver(down=True)
    box = opened(receiver, path)
    for number, change in enumerate((lambda: path.write_bytes(b"\0\n"), path.unlink)):
        put(box, rows(number, number + 1))
        wait_for(lambda: box._waiting)
        with box._lock:  # not between two of its writes
            change()
        wait_for(lambda: box._waiting == 0)
    receiver.down = False
    put(box, rows(2, 5))
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(2, 5)
    assert len(box.set_aside) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "spool-broken1.jsonl"]


def test_a_file_that_breaks_before_it_is_first_added_to_loses_no_row(tmp_path):
    path = tmp_path / "spool.jsonl"
    box = Outbox(Receiver().deliver, path, HEADER)
    put(box, rows(0, 3))
    path.write_bytes(b"what\n{}\n")
    assert box.close(0).rows == 3
    receiver = Receiver()
    again = opened(receiver, path)
    assert again.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 3)


def test_rows_that_are_in_no_file_of_waiting_rows_have_a_header_too(tmp_path):
    for start in (0, 2):
        put(Outbox(Receiver().deliver, tmp_path / "spool.jsonl", HEADER), rows(start, start + 2))
    assert JsonlFile(ahead_of(tmp_path / "spool.jsonl")).read() == [HEADER, *rows(0, 4)]


def test_rows_that_wait_in_a_copy_belong_where_the_copy_goes_on(tmp_path):
    """They are delivered from the file, by its header, if the store does not answer this time either."""
    path, copy = tmp_path / "spool.jsonl", {**HEADER, "id": "of a copy"}
    box = Outbox(Receiver().deliver, path, HEADER)
    put(box, rows(0, 2))
    box.close(0)
    put(Outbox(Receiver().deliver, path, HEADER), rows(2, 4))
    again = Outbox(Receiver().deliver, path, copy)
    assert [JsonlFile(file).read() for file in (path, ahead_of(path))] == [[copy, *rows(0, 2)], [copy, *rows(2, 4)]]
    put(again, rows(4, 6))
    assert again.close(0).rows == 6
    assert JsonlFile(path).read() == [copy, *rows(0, 6)]


class Stuck:
    """Never answers, as a store that is being made when the process is killed."""

    def __init__(self):
        self.asked, self.free = threading.Event(), threading.Event()

    def deliver(self, _rows):
        self.asked.set()
        self.free.wait(PATIENCE_SECONDS)
        raise ConnectionError("killed")


def test_rows_of_a_process_that_was_killed_are_delivered_by_the_next(tmp_path):
    stuck, receiver = Stuck(), Receiver()
    killed = opened(stuck, tmp_path / "spool.jsonl")
    put(killed, rows(0, 3))
    assert stuck.asked.wait(PATIENCE_SECONDS)
    put(killed, rows(3, 5))
    box = opened(receiver, tmp_path / "spool.jsonl")  # kill -9: nobody closed the first one
    put(box, rows(5, 7))
    assert box.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 7)
    assert list(tmp_path.iterdir()) == []
    killed._abandoned = True
    stuck.free.set()


def test_rows_that_were_delivered_are_not_delivered_again(tmp_path):
    first, second = Receiver(), Receiver()
    box = opened(first, tmp_path / "spool.jsonl")
    put(box, rows(0, 3))
    wait_for(lambda: first.rows == rows(0, 3) and not list(tmp_path.iterdir()))
    again = opened(second, tmp_path / "spool.jsonl")
    assert again.close(PATIENCE_SECONDS) == Undelivered()
    assert second.rows == []
    assert box.close(PATIENCE_SECONDS) == Undelivered()


def test_rows_of_an_outbox_that_was_never_started_wait_in_the_file(tmp_path):
    receiver = Receiver()
    box = Outbox(receiver.deliver, tmp_path / "spool.jsonl", HEADER)
    put(box, rows(0, 3))
    assert box.close(0) == Undelivered(3, tmp_path / "spool.jsonl", "the store was not asked")
    assert (receiver.calls, stored_rows(tmp_path / "spool.jsonl")) == (0, rows(0, 3))
    again = opened(receiver, tmp_path / "spool.jsonl")
    again.start()
    assert again.close(PATIENCE_SECONDS) == Undelivered()
    assert receiver.rows == rows(0, 3)
