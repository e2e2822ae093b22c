"""What is looked up at most so often: shared, fresh enough, and forgotten at once when something was changed."""

import asyncio
import threading

import pytest

from sweeper.errors import UnknownSweepError
from sweeper.service.responses.ttl_cache import PATIENCE, TtlCache

SECONDS = 10.0


class Looks:
    """Counts looks; each waits at the gate while it is closed."""

    def __init__(self):
        self.count, self.gate, self.fails = 0, threading.Event(), False
        self.gate.set()

    def __call__(self, name):
        self.count += 1
        seen = f"{name} {self.count}"
        assert self.gate.wait(300)
        if self.fails:
            raise UnknownSweepError("gone")
        return seen


class Clock:
    """Stands still unless a test moves it: a busy machine makes nothing older."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


async def _settled(kept, name):
    while name in kept._looking:
        await asyncio.sleep(0.001)


def test_all_who_ask_at_the_same_time_share_one_look(clock):
    looks = Looks()
    kept = TtlCache(looks, SECONDS, clock)

    async def ask():
        return await asyncio.gather(*(kept.get("a") for _ in range(50)))

    assert set(asyncio.run(ask())) == {"a 1"}


def test_what_is_kept_is_told_while_it_is_looked_up_anew(clock):
    looks = Looks()
    kept = TtlCache(looks, SECONDS, clock)

    async def ask():
        first = await kept.get("a")
        clock.now += (PATIENCE - 0.5) * SECONDS
        looks.gate.clear()
        second = await kept.get("a")  # would wait for ever if it waited for the look
        looks.gate.set()
        await _settled(kept, "a")
        return first, second, await kept.get("a")

    assert asyncio.run(ask()) == ("a 1", "a 1", "a 2")


def test_what_is_too_old_is_not_told(clock):
    kept = TtlCache(Looks(), SECONDS, clock)

    async def ask():
        await kept.get("a")
        clock.now += PATIENCE * SECONDS
        return await kept.get("a")

    assert asyncio.run(ask()) == "a 2"


@pytest.mark.parametrize("asked_meanwhile", [False, True])
def test_nothing_of_a_look_that_began_before_a_change_is_kept(asked_meanwhile, clock):
    looks = Looks()
    kept = TtlCache(looks, SECONDS, clock)

    async def ask():
        looks.gate.clear()
        before = asyncio.create_task(kept.get("a"))
        while not looks.count:
            await asyncio.sleep(0.001)
        kept.forget("a")
        after = asyncio.create_task(kept.get("a")) if asked_meanwhile else None
        await asyncio.sleep(0)
        looks.gate.set()
        assert await before == "a 1"
        return await after if after else await kept.get("a"), await kept.get("a")

    assert asyncio.run(ask()) == ("a 2", "a 2")


def test_what_a_look_raises_is_raised_and_not_kept(clock):
    looks = Looks()
    kept = TtlCache(looks, SECONDS, clock)

    async def ask():
        await kept.get("a")
        looks.fails = True
        clock.now += (PATIENCE - 0.5) * SECONDS
        assert await kept.get("a") == "a 1"  # the look behind it fails, which nobody waits for
        await _settled(kept, "a")
        clock.now += SECONDS
        with pytest.raises(UnknownSweepError):
            await kept.get("a")
        looks.fails = False
        return await kept.get("a")

    assert asyncio.run(ask()) == "a 4"


def test_names_that_nobody_asks_for_any_more_are_not_kept(clock):
    kept = TtlCache(Looks(), SECONDS, clock)

    async def ask():
        await kept.get("a")
        clock.now += PATIENCE * SECONDS
        await kept.get("b")

    asyncio.run(ask())
    assert list(kept._kept) == ["b"]
