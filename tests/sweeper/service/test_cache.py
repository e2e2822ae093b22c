"""One cache for all: made once, shared, fresh enough, bounded, and forgotten at once when something was changed."""

import asyncio
import gc
import threading
from functools import partial

import pytest
from anyio import to_thread

from sweeper.errors import UnknownSweepError
from sweeper.service.cache import SharedCache

SECONDS, STALE_SECONDS = 10.0, 40.0


class Makes:
    """Counts what it makes; each making waits at the gate while it is closed."""

    def __init__(self):
        self.count, self.gate, self.fails = 0, threading.Event(), False
        self.gate.set()

    def __call__(self, name):
        self.count += 1
        made = f"{name} {self.count}"
        assert self.gate.wait(300)
        if self.fails:
            raise UnknownSweepError("gone")
        return made


@pytest.fixture
def cache(clock):
    return SharedCache(clock=clock)


@pytest.fixture
def makes():
    return Makes()


@pytest.fixture
def ask(cache, makes):
    """Ask as the event loop does for what is looked up again and again."""

    async def get(name, version=None):
        look = partial(to_thread.run_sync, makes, name)
        return await cache.get_async(name, look, version, SECONDS, STALE_SECONDS)

    return get


async def _settled(cache, name):
    while name in cache._making:
        await asyncio.sleep(0.001)


def _in_threads(count, call):
    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_value_is_made_once_for_all_threads_and_again_for_another_version(cache, makes):
    found, gate = [], threading.Barrier(8)
    _in_threads(8, lambda: (gate.wait(), found.append(cache.get("a", lambda: makes("a"), version=1))))
    assert found == ["a 1"] * 8
    assert cache.get("a", lambda: makes("a"), version=2) == "a 2"
    assert cache.get("a", lambda: makes("a"), version=2) == "a 2"


def test_making_one_value_keeps_no_other_waiting(cache, makes):
    makes.gate.clear()
    slow = threading.Thread(target=lambda: cache.get("slow", lambda: makes("slow")))
    slow.start()
    while not makes.count:
        pass
    assert cache.get("quick", lambda: 7) == 7
    makes.gate.set()
    slow.join()


def test_a_newer_version_does_not_wait_for_an_older_one_which_is_not_kept(cache, makes):
    makes.gate.clear()
    old = []
    slow = threading.Thread(target=lambda: old.append(cache.get("a", lambda: makes("old"), version=1)))
    slow.start()
    while not makes.count:
        pass
    assert cache.get("a", lambda: "new", version=2) == "new"
    makes.gate.set()
    slow.join()
    assert old == ["old 1"]
    assert cache.peek("a") == "new"


def test_a_value_that_is_too_old_is_made_anew(cache, makes, clock):
    get = partial(cache.get, "a", lambda: makes("a"), max_age_seconds=SECONDS)
    assert get() == "a 1"
    clock.now += 0.9 * SECONDS
    assert get() == "a 1"
    clock.now += 0.1 * SECONDS
    assert get() == "a 2"


def test_what_fails_is_raised_and_not_kept(cache):
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 / 0)
    assert cache.peek("a") is None
    assert cache.get("a", lambda: 7) == 7


def test_what_is_kept_is_bounded_by_number_or_by_size():
    cache = SharedCache(3)
    for key in (0, 1, 2, 0, 3):
        cache.get(key, lambda: "value")
    assert [cache.peek(key) is not None for key in range(4)] == [True, False, True, True]
    cache = SharedCache(10, size=len)
    assert cache.get("a", lambda: "x" * 11) == "x" * 11
    assert (len(cache), cache.total) == (0, 0)
    for key in range(5):
        cache.get(key, lambda: "x" * 4)
    assert (len(cache), cache.total) == (2, 8)


def test_the_sizes_together_are_right_after_every_change():
    cache = SharedCache(10, size=len)
    cache.get("a", lambda: "x" * 4)
    cache.get("b", lambda: "x" * 3)
    cache.get("a", lambda: "x" * 6, version=2)  # in the place of the first
    assert cache.total == 9
    cache.get("c", lambda: "x" * 5)
    assert (cache.total, cache.peek("b"), cache.peek("a")) == (5, None, None)
    cache.forget("c")
    cache.forget("c")
    assert (len(cache), cache.total) == (0, 0)


def test_all_who_ask_at_the_same_time_share_one_look(ask):
    async def many():
        return await asyncio.gather(*(ask("a") for _ in range(50)))

    assert set(asyncio.run(many())) == {"a 1"}


def test_an_error_is_told_to_all_who_wait_and_the_next_one_tries_again(ask, cache, makes):
    async def many():
        makes.fails = True
        found = await asyncio.gather(*(ask("a") for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [UnknownSweepError] * 3
        assert cache._making == {}
        makes.fails = False
        return await ask("a")

    assert asyncio.run(many()) == "a 2"


def test_a_client_that_goes_away_ends_no_making_that_others_wait_for(ask, makes):
    async def many():
        makes.gate.clear()
        first = asyncio.create_task(ask("a"))
        while not makes.count:
            await asyncio.sleep(0.001)
        second = asyncio.create_task(ask("a"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        makes.gate.set()
        return await second

    assert asyncio.run(many()) == "a 1"


def test_who_waits_on_the_event_loop_holds_no_thread(ask, makes):
    async def many():
        makes.gate.clear()
        waiting = [asyncio.create_task(ask("a")) for _ in range(100)]
        while not makes.count:
            await asyncio.sleep(0.001)
        assert await to_thread.run_sync(lambda: "free") == "free"  # would wait for ever without a free thread
        makes.gate.set()
        return await asyncio.gather(*waiting)

    assert set(asyncio.run(many())) == {"a 1"}


@pytest.mark.long
def test_a_making_is_not_collected_as_garbage_while_it_is_under_way(ask, makes):
    async def many():
        makes.gate.clear()
        waiting = asyncio.create_task(ask("a"))
        while not makes.count:
            await asyncio.sleep(0.001)
        gc.collect()
        makes.gate.set()
        return await waiting

    assert asyncio.run(many()) == "a 1"


def test_what_is_kept_is_told_while_it_is_looked_up_anew(ask, cache, makes, clock):
    async def many():
        first = await ask("a")
        clock.now += STALE_SECONDS - 1
        makes.gate.clear()
        second = await ask("a")  # would wait for ever if it waited for the look
        makes.gate.set()
        await _settled(cache, "a")
        return first, second, await ask("a")

    assert asyncio.run(many()) == ("a 1", "a 1", "a 2")


def test_what_is_too_old_or_of_another_version_is_not_told(ask, clock):
    async def many():
        await ask("a")
        clock.now += STALE_SECONDS
        return await ask("a"), await ask("a", "newer")

    assert asyncio.run(many()) == ("a 2", "a 3")


@pytest.mark.parametrize("asked_meanwhile", [False, True])
def test_nothing_of_a_look_that_began_before_a_change_is_kept(asked_meanwhile, ask, cache, makes):
    async def many():
        makes.gate.clear()
        before = asyncio.create_task(ask("a"))
        while not makes.count:
            await asyncio.sleep(0.001)
        cache.forget("a")
        after = asyncio.create_task(ask("a")) if asked_meanwhile else None
        await asyncio.sleep(0)
        makes.gate.set()
        assert await before == "a 1"
        return await after if after else await ask("a"), await ask("a")

    assert asyncio.run(many()) == ("a 2", "a 2")


def test_what_a_look_raises_is_raised_and_not_kept(ask, cache, makes, clock):
    async def many():
        await ask("a")
        makes.fails = True
        clock.now += STALE_SECONDS - 1
        assert await ask("a") == "a 1"  # the look behind it fails, for which no caller waits
        await _settled(cache, "a")
        clock.now += SECONDS
        with pytest.raises(UnknownSweepError):
            await ask("a")
        makes.fails = False
        return await ask("a")

    assert asyncio.run(many()) == "a 4"
