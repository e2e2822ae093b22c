"""Do the audits catch what is wrong, and leave alone what is right?

    python benchmarks/audits.py [--parts tight right wrong cost] [--seeds 200] [--faulty-seeds 5] [--tight-seeds 20]

Three tables, for clipless, lip-dp-sgd and dp-sgd:

* claim, attained lower bound and ratio: medians over seeds, one training each with 4,000 candidate canaries,
  and with 8,000 in wider layers, which have room for them;
* how often a correct training is accused, over all its audits; at most 5 % by design;
* faults that multiply a sensitivity or divide the noise by two or more, and who catches them; and what an audit costs.

Ends with 1 if a fault went unnoticed, or correct trainings are accused more often than a chance of one in a thousand.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
from statistics import median
from unittest.mock import patch

import torch
from scipy import stats
from torch import Tensor

import clipless
from clipless.audits.audit import audit_training
from clipless.audits.audited_training import AuditedTraining, Effort, make_random_rows
from clipless.audits.finding import ACCUSATION, AuditKind, Finding, judge
from clipless.audits.noise import audit_noise
from clipless.audits.one_run import audit_one_run
from clipless.audits.step import audit_step
from clipless.errors import UnsupportedError
from clipless.guards import guard as guards
from clipless.layers import Dense, GroupSort, InputBall
from clipless.network import Network
from clipless.plans.plan import Plan
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import RandomSource
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource
from clipless.training import per_example, trainer

METHODS: Mapping[str, Mapping[str, object]] = {
    "clipless": {"method": clipless.Method.CLIPLESS},
    "lip-dp-sgd": {"method": clipless.Method.LIP_DP_SGD},
    "dp-sgd": {"method": clipless.Method.DP_SGD, "clip_norm": 1.0},
}
PARTS = ("tight", "right", "wrong", "cost")
TIGHT = ((4000, 64), (8000, 128))  # candidate canaries, width of the network
_FEW = 1000  # candidate canaries where many trainings are audited


@dataclass(frozen=True)
class Job:
    """One training to audit: a method, a seed, and what is wrong with it."""

    method: str
    seed: int
    fault: str = ""
    canaries: int = _FEW
    width: int = 64


def audited(method: str, seed: int, width: int = 64) -> AuditedTraining:
    """A small dense network at epsilon 3, whose training takes twenty steps; noise by the seed."""
    generator = torch.Generator().manual_seed(0)
    layers = [
        InputBall(10.0),
        Dense(width, width, generator=generator, bias=True, bias_norm=0.1),
        GroupSort(2),
        Dense(width, width, generator=generator),
    ]
    model, loss, seeds = Network(layers, (width,)), clipless.TauCCE(1.0), count(1_000_000 + 1000 * seed)
    plan = clipless.make_plan(
        model, loss, population=8000, batch_size=2000, delta=1e-5, epsilon=3.0, epochs=5, **METHODS[method]
    )

    def source() -> RandomSource:
        return SeededSource(next(seeds))

    rows = make_random_rows(model, 64)
    return AuditedTraining(
        subject=f"{method}, seed {seed}",
        model=model,
        loss=loss,
        plan=plan,
        rows=rows,
        optimizer=clipless.SGD(0.1),
        source=source,
    )


def audit(job: Job) -> tuple[Finding, ...]:
    """Every audit of one training, judged together."""
    torch.set_num_threads(1)
    training = audited(job.method, job.seed, job.width)
    with FAULTS[job.fault]() if job.fault else nullcontext():
        found = [audit_step(training, seed=job.seed)]
        with suppress(UnsupportedError):  # a training that mixes rows refuses itself
            found.append(audit_noise(training, Effort.CHEAP))
            found.extend(audit_one_run(training, canaries=job.canaries, seed=job.seed))
    return judge(found)


# Faults

Fault = Callable[[], AbstractContextManager[object]]


def _twice(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **options: 2.0 * function(*args, **options)


def _guard_twice_as_wide() -> AbstractContextManager[object]:
    return _both(
        patch.object(guards, "clipping_scales", _twice(guards.clipping_scales)),
        patch.object(per_example, "_factors", _twice(per_example._factors)),
    )


def _no_guard() -> AbstractContextManager[object]:
    def ones(gradients: Sequence[object], _: float) -> Tensor:
        return torch.ones_like(gradients[0].norms)  # type: ignore[attr-defined]

    def free(_: float, norm_B: Tensor, divisor_B: Tensor | None, __: object) -> Tensor:
        return torch.ones_like(norm_B) if divisor_B is None else 1.0 / divisor_B

    return _both(patch.object(guards, "clipping_scales", free), patch.object(per_example, "_factors", ones))


@contextmanager
def _both(*several: AbstractContextManager[object]) -> Iterator[None]:
    with several[0], several[1] if len(several) > 1 else nullcontext():
        yield


def _scaled_by_the_batch() -> AbstractContextManager[object]:
    """What a row contributes is scaled by the mean norm of the batch in place of its own."""

    def shared(sensitivity: float, norm_B: Tensor, divisor_B: Tensor | None, _: object) -> Tensor:
        by = norm_B if divisor_B is None else torch.maximum(norm_B / sensitivity, divisor_B) * sensitivity
        finite = by[by.isfinite()]
        typical = finite.mean() if len(finite) else torch.ones(())
        return torch.where(norm_B.isfinite(), sensitivity / typical, 0.0).double()

    def factors(gradients: Sequence[object], clip_norm: float) -> Tensor:
        norm_B = torch.stack([one.norms for one in gradients]).norm(dim=0)  # type: ignore[attr-defined]
        return shared(clip_norm, norm_B, None, None)

    return _both(patch.object(guards, "clipping_scales", shared), patch.object(per_example, "_factors", factors))


def _half_the_noise() -> AbstractContextManager[object]:
    whole = SeededSource.normal
    return patch.object(SeededSource, "normal", lambda self, n, device="cpu": 0.5 * whole(self, n, device))


def _half_the_planned_noise() -> AbstractContextManager[object]:
    whole = Plan.noise_stds.fget  # type: ignore[attr-defined]
    return patch.object(Plan, "noise_stds", property(lambda self: {k: 0.5 * v for k, v in whole(self).items()}))


def _half_the_noise_is_priced() -> AbstractContextManager[object]:
    """The event, from which epsilon is computed, says twice the noise."""
    event = Plan.event

    def wrong(self: Plan, epochs: int | None = None) -> PoissonGaussian:
        right = event(self, epochs)
        return PoissonGaussian(
            noise_multiplier=2.0 * right.noise_multiplier,
            sampling_rate=right.sampling_rate,
            steps=right.steps,
            relation=right.relation,
        )

    return patch.object(Plan, "event", wrong)


def _one_noise_for_all_steps() -> AbstractContextManager[object]:
    whole, first = SeededSource.normal, {}

    def same(self: SeededSource, n: int, device: str = "cpu") -> Tensor:
        drawn = whole(self, n, device)
        return first.setdefault(n, drawn)

    return patch.object(SeededSource, "normal", same)


def _one_batch_for_all_steps() -> AbstractContextManager[object]:
    whole = PoissonSampler.draw
    drawn: dict[int, object] = {}

    def same(self: PoissonSampler) -> object:
        return drawn.setdefault(id(self), whole(self))

    return patch.object(PoissonSampler, "draw", same)


def _rows_join_twice_as_often() -> AbstractContextManager[object]:
    whole = PoissonSampler.__init__

    def init(self: PoissonSampler, population: int, sampling_rate: float, *rest: object) -> None:
        whole(self, population, min(1.0, 2.0 * sampling_rate), *rest)  # type: ignore[arg-type]

    return patch.object(PoissonSampler, "__init__", init)


def _every_row_passes_twice() -> AbstractContextManager[object]:
    whole = trainer.sum_gradients

    def twice(*args: object, **options: object) -> None:
        whole(*args, **options)  # type: ignore[arg-type]
        whole(*args, **options)  # type: ignore[arg-type]

    return patch.object(trainer, "sum_gradients", twice)


def _four_times_the_steps() -> AbstractContextManager[object]:
    whole = trainer.PrivateTrainer._train_epoch

    def more(self: trainer.PrivateTrainer) -> None:
        for _ in range(4):
            whole(self)
            self.epoch -= 1
        self.epoch += 1

    return patch.object(trainer.PrivateTrainer, "_train_epoch", more)


FAULTS: Mapping[str, Fault] = {
    "the guard lets through twice its sensitivity": _guard_twice_as_wide,
    "no guard": _no_guard,
    "a row is scaled by its batch": _scaled_by_the_batch,
    "every row passes twice": _every_row_passes_twice,
    "half the noise is drawn": _half_the_noise,
    "half the noise is planned": _half_the_planned_noise,
    "twice the noise is priced": _half_the_noise_is_priced,
    "one noise for all steps": _one_noise_for_all_steps,
    "one batch for all steps": _one_batch_for_all_steps,
    "rows join twice as often": _rows_join_twice_as_often,
    "four times the steps": _four_times_the_steps,
}


# Tables


def tight_table(found: Mapping[str, Sequence[tuple[Finding, ...]]]) -> str:
    """Claim and medians of what was attained, a line for each method."""
    lines = [
        "| method | claim | attained | ratio | by the run | by the steps | final model | any mechanism | step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method, runs in found.items():
        of = {kind: [one for run in runs for one in run if one.kind is kind] for kind in AuditKind}
        run, attained = of[AuditKind.ONE_RUN], median(one.attained for one in of[AuditKind.ONE_RUN])
        means = [median(one.evidence[name] for one in run) for name in _WAYS]
        final, step = (median(one.attained for one in of[kind]) for kind in (AuditKind.FINAL_MODEL, AuditKind.STEP))
        cells = [run[0].epsilon, attained, attained / run[0].epsilon, means[0], means[1], final, means[2], step]
        lines.append(f"| {method} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return "\n".join(lines)


_WAYS = ("attained by the run", "attained by the steps", "attained of any mechanism")


def accusation_table(found: Mapping[str, Sequence[tuple[Finding, ...]]]) -> str:
    """How many correct trainings were accused, and how often an attained bound exceeded the claim."""
    lines = ["| method | trainings | accused | attained above the claim |", "|---|---|---|---|"]
    for method, runs in found.items():
        above = sum(any(one.attained > one.epsilon for one in run) for run in runs)
        lines.append(f"| {method} | {len(runs)} | {accused(runs)} | {above} |")
    return "\n".join(lines)


def accused(runs: Sequence[tuple[Finding, ...]]) -> int:
    """Number of trainings of which any claim is contradicted."""
    return sum(any(one.contradicted for one in run) for run in runs)


def fault_table(found: Mapping[tuple[str, str], Sequence[tuple[Finding, ...]]]) -> str:
    """Trainings caught of each fault, and the kinds of audits that caught it."""
    lines = ["| fault | " + " | ".join(METHODS) + " | by |", "|---" * (len(METHODS) + 2) + "|"]
    for fault in FAULTS:
        cells = [f"{accused(found[fault, method])} / {len(found[fault, method])}" for method in METHODS]
        runs = [run for method in METHODS for run in found[fault, method]]
        kinds = sorted({one.kind.value for run in runs for one in run if one.contradicted})
        lines.append(f"| {fault} | " + " | ".join(cells) + f" | {', '.join(kinds)} |")
    return "\n".join(lines)


def cost(method: str, rounds: int = 5, steps: int = 4) -> tuple[float, float, float]:
    """Processor seconds of a cheap audit, of a brief one, and of a trial of 20 epochs at rate 1/100.

    Of an image-sized network, in one thread; medians over rounds, in each of which audits and steps take turns.
    """
    torch.set_num_threads(1)
    model, loss = clipless.zoo.convnet((1, 28, 28), 10, input_norm=10.0, width=16, depth=2), clipless.TauCCE(1.0)
    rows = make_random_rows(model, 10, 1024)
    spent: dict[object, list[float]] = {Effort.CHEAP: [], Effort.BRIEF: [], "step": []}

    def timed(what: object, call: Callable[[], object]) -> None:
        begun = time.process_time()
        call()
        spent[what].append(time.process_time() - begun)

    for number in range(rounds):
        # another noise in each round, so that no price is remembered
        plan = clipless.make_plan(
            model,
            loss,
            population=51_200,
            batch_size=512,
            delta=1e-6,
            noise_multiplier=1.0 + 0.01 * number,
            epochs=20,
            **METHODS[method],
        )
        training = AuditedTraining(subject=method, model=model, loss=loss, plan=plan, rows=rows)
        for effort in (Effort.CHEAP, Effort.BRIEF):
            timed(effort, partial(audit_training, training, effort, seed=number))
        running = trainer.PrivateTrainer(model, loss, rows, plan, clipless.Adam(1e-3), 512, SeededSource(0))
        for _ in range(steps):
            timed("step", partial(running.step, torch.arange(512)))
    cheap, brief, step = (median(seconds) for seconds in spent.values())
    return cheap, brief, step * plan.event().steps


def campaign(options: argparse.Namespace, pool: ProcessPoolExecutor) -> bool:
    """Print the tables of the chosen parts; return whether the audits keep what they promise."""
    run, kept = partial(pool.map, audit, chunksize=5), True
    if "tight" in options.parts:
        seeds = range(options.tight_seeds)
        for canaries, width in TIGHT:
            jobs = {m: [Job(m, s, canaries=canaries, width=width) for s in seeds] for m in METHODS}
            table = tight_table({method: list(run(listed)) for method, listed in jobs.items()})
            print(f"\n{canaries} candidate canaries, layers of {width} x {width}\n\n{table}", flush=True)
    if "right" in options.parts:
        right: dict[str, list[tuple[Finding, ...]]] = {}
        for method in METHODS:
            right[method] = list(run([Job(method, seed) for seed in range(options.seeds)]))
            print("\n" + accusation_table(right), flush=True)
        trainings = options.seeds * len(METHODS)
        kept &= bool(stats.binom.sf(sum(map(accused, right.values())) - 1, trainings, ACCUSATION) >= 1e-3)
    if "wrong" in options.parts:
        seeds = range(options.faulty_seeds)
        wrong = {(f, m): list(run([Job(m, s, f) for s in seeds])) for f in FAULTS for m in METHODS}
        print("\n" + fault_table(wrong), flush=True)
        kept &= all(accused(runs) == len(runs) for runs in wrong.values())
    return kept


def main() -> None:
    """Print the tables; end with 1 if the audits do not keep what they promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--faulty-seeds", type=int, default=5)
    parser.add_argument("--tight-seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        kept = campaign(options, pool)
    for method in METHODS if "cost" in options.parts else ():
        cheap, brief, trial = cost(method)
        print(
            f"\n{method}: a cheap audit takes {cheap:.2f} s of the processor, {cheap / trial:.2%} of a trial of "
            f"{trial:.0f} s; a brief one {brief:.2f} s, {brief / trial:.2%}"
        )
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
