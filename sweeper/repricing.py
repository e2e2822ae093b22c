"""Second prices in the background: the PLD curve of each trial, computed while it trains.

A trial reports the upper bound of one accountant, which costs it milliseconds. The other accountant's takes
up to seconds; it is computed here, in one thread of the driver, once per distinct plan. No trial waits for
it.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from clipless.privacy.accounting import claim, pld_curve
from clipless.privacy.events import PoissonGaussian
from sweeper.pricing import steps_by
from sweeper.records import Point

Curve = list[float]
_Key = tuple[PoissonGaussian, tuple[int, ...], float]


class Repricer:
    """Orders, keeps and hands out PLD curves; a curve per (event, steps by the end of each epoch, delta)."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pld")
        self._curves: dict[_Key, Future[Curve]] = {}
        self._trials: dict[str, _Key] = {}

    def order(self, trial: str, plan: Mapping[str, Any]) -> None:
        """Start computing the curve of a trial's plan."""
        ends = tuple(steps_by(plan, epoch) for epoch in range(1, int(plan["epochs"]) + 1))
        key = (PoissonGaussian.from_json(plan["event"]), ends, float(plan["delta"]))
        self._trials[trial] = key
        if key not in self._curves:
            self._curves[key] = self._thread.submit(_curve, *key)

    def ready(self, trial: str) -> bool:
        """Whether the curve of a trial is there."""
        return self._curves[self._trials[trial]].done()

    def reprice(self, point: Point) -> Point:
        """Return a point with both accountants and the smaller epsilon, once the curve of its trial is there.

        Raises:
            AccountantsDisagreeError: neither number of this trial can be trusted.
        """
        pld = self._curves[self._trials[point.trial]].result()[point.epoch - 1]
        epsilon = min(pld, point.values["epsilon"])
        return replace(
            point, values={**point.values, "epsilon": epsilon}, accountants={**point.accountants, "pld": pld}
        )

    def close(self) -> None:
        """Drop what has not been started."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _curve(event: PoissonGaussian, ends: tuple[int, ...], delta: float) -> Curve:
    claim(event, delta)  # raises if the accountants contradict each other
    return pld_curve(event, ends, delta)
