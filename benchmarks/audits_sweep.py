"""Do audits of private selection and of whole sweeps come near the claim, leave the right ones alone, and catch faults?

    python benchmarks/audits_sweep.py [--parts tight wrong right cost] [--seeds 200] [--runs 20000]

Three tables: claim, attained lower bound and ratio of known mechanisms, through the ledger that prices them; how often
correct prices are accused over seeds, at most 5 % by design; and wrong prices, each caught. Then the cost of the audits
that every sweep ends with, beside the trials that they are of. Ends with 1 if a wrong price went unnoticed, or right
ones are accused more often than a chance of one in a thousand.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import median

import torch
from scipy import stats

import clipless
from clipless.audits.audited_training import Effort
from clipless.audits.finding import ACCUSATION, Finding, judge
from clipless.datasets import Dataset
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits import prices, selection
from sweeper.audits.prices import audit_price
from sweeper.audits.trials import audit_trial
from sweeper.driver.recording.trial_records import points_of
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._exploration import Exploration
from sweeper.privacy.spending.slots import Slots
from sweeper.records import Point, ReleasedCurves, Trial, TrialPlan
from sweeper.specification.spec import Spec
from sweeper.specification.stages import StagePlan
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.stream import EpochRow
from sweeper.trials.trial import TrialRun

PARTS = ("tight", "wrong", "right", "cost")
DELTA = 1e-5
TRIAL = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.2, steps=20, relation=Relation.ADD_OR_REMOVE_ONE)
SHORT = replace(TRIAL, steps=2)  # of many seeds
CURVE = replace(TRIAL, noise_multiplier=4.5, sampling_rate=1.0, steps=1)
CURVES = 12
LAW = Repetitions(mean=10.0)
QUICK = {
    "name": "quick",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 64},
    "training": {"epochs": 30, "batch_size": 256, "learning_rate": 0.05, "sensitivity_fraction": 0.1},
    "privacy": {"epsilon": 3, "delta": 1e-4},
    "search": {"objectives": ["epsilon", "accuracy", "certified@0.25"], "trials": 1},
}
STAGES = (StagePlan(12, 0.2), StagePlan(3, 0.3), StagePlan(1, 0.5))


@dataclass(frozen=True, kw_only=True)
class Priced:
    """A sweep that is known: what its trials released, and the ledger that prices it."""

    ledger: Ledger
    trials: tuple[Trial, ...]
    law: Repetitions | None = None
    curves: int = 0

    def audit(self, seed: int = 0) -> tuple[Finding, ...]:
        """Attack its price."""
        points = [Point(trial=trial.id, epoch=1, values={}) for trial in self.trials]
        points += [curves_of(self.trials[n % len(self.trials)], n) for n in range(self.curves)]
        return audit_price(self.ledger, self.trials, points, DELTA, repetitions=self.law, seed=seed)


@dataclass
class Kept:
    """Ledgers in a folder that is gone at the end."""

    folder: Path
    made: int = field(default=0)

    def ledger(self) -> Ledger:
        """Return a new one."""
        self.made += 1
        return Ledger(self.folder / f"{self.made}.jsonl")


def curves_of(trial: Trial, number: int) -> Point:
    """Return a point whose curves of private test rows were released."""
    one = (1.0,)
    curves = ReleasedCurves(
        confidence=0.95,
        noise_multiplier=CURVE.noise_multiplier,
        rows=100,
        radii=(0.0,),
        certified=one,
        certified_low=one,
        certified_high=one,
    )
    return Point(trial=trial.id, epoch=1, made_from=str(number), values={}, test={}, curves=curves)


def trial_of(number: int, event: PoissonGaussian) -> Trial:
    """Return a trial of one epoch that spent an event."""
    plan = TrialPlan(
        method="clipless",
        population=1000,
        batch_size=200,
        sampling_rate=event.sampling_rate,
        steps_per_epoch=event.steps,
        preliminary_steps=0,
        epochs=1,
        noise_multiplier=event.noise_multiplier,
        delta=DELTA,
        relation=event.relation,
        allocation="min-variance",
        sensitivity_fraction=1.0,
        clip_norm=None,
        follow_weights=False,
        clipping={},
        count_std=0.0,
        freezing=None,
        sensitivities={},
        noise_stds={},
        event=event,
        epsilon_curve=(),
        accountants={},
        repeats=1,
        secure_generator=True,
    )
    return Trial(id=f"t{number:04d}", config={}, plan=plan)


def composed(kept: Kept, event: PoissonGaussian = TRIAL) -> Priced:
    """Eight trainings without a budget."""
    ledger, trials = kept.ledger(), tuple(trial_of(n, event) for n in range(1, 9))
    _spend(ledger, trials)
    return Priced(ledger=ledger, trials=trials)


def staged(kept: Kept, event: PoissonGaussian = TRIAL) -> Priced:
    """Twelve explorers, three in the middle and one final, in the slots of a budget."""
    ledger, budget = kept.ledger(), Slots.of_plans(3.0, DELTA, STAGES, event)
    ledger.set_budget(budget)
    trials = tuple(trial_of(n, budget.slot_of(f"t{n:04d}")) for n in range(1, budget.trials + 1))
    _spend(ledger, trials, [budget.stage_of(n) for n in range(1, budget.trials + 1)])
    return Priced(ledger=ledger, trials=trials)


def curved(kept: Kept, event: PoissonGaussian = TRIAL) -> Priced:
    """One training, and the curves of twelve points of private test rows, which cost more than it."""
    ledger, trials = kept.ledger(), (trial_of(1, event),)
    _spend(ledger, trials)
    for _ in range(CURVES):
        ledger.enter_test("t0001", 1, PaidScores(event=CURVE, apart=True))
    return Priced(ledger=ledger, trials=trials, curves=CURVES)


def selected(kept: Kept, event: PoissonGaussian = TRIAL) -> Priced:
    """The best of a secret random number of trainings."""
    ledger = kept.ledger()
    ledger.select(Terms(event=event, repetitions=LAW))
    return Priced(ledger=ledger, trials=(trial_of(1, event),), law=LAW)


def explored(kept: Kept, event: PoissonGaussian = TRIAL) -> Priced:
    """A selection at a whisper, and the final that trains its winner aloud."""
    ledger, budget = kept.ledger(), Exploration.of_share(3.0, DELTA, LAW, event, share=0.35)
    if budget.selection is None:
        raise AssertionError("a budget without its selection")
    ledger.set_budget(budget)
    ledger.select(budget.selection)
    trials = trial_of(1, budget.selection.event), trial_of(2, budget.final.slot)
    _spend(ledger, trials[1:], [0])
    return Priced(ledger=ledger, trials=trials, law=LAW)


def _spend(ledger: Ledger, trials: tuple[Trial, ...], stages: list[int] | None = None) -> None:
    for number, trial in enumerate(trials):
        if trial.plan is not None:
            ledger.open(trial.id, trial.plan.event, stage=None if stages is None else stages[number])
            ledger.close(trial.id, trial.plan.event.steps)


SWEEPS: Mapping[str, Callable[[Kept, PoissonGaussian], Priced]] = {
    "a whole sweep, 8 trainings composed": composed,
    "a whole sweep, 12 + 3 + 1 in slots": staged,
    "a training and the curves of 12 points": curved,
    "private selection, mean 10": selected,
    "selection at a whisper and final": explored,
}


def wrong(kept: Kept) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    """Yield wrong prices, each with what the audit finds."""
    right = staged(kept)
    final_alone = kept.ledger()
    _spend(final_alone, right.trials[-1:])
    yield "explorers left out of the price", replace(right, ledger=final_alone).audit()
    one = kept.ledger()
    _spend(one, composed(kept).trials[:1])
    yield "one training of eight in the ledger", replace(composed(kept), ledger=one).audit()
    quiet = selected(kept, replace(TRIAL, noise_multiplier=2.0 * TRIAL.noise_multiplier))
    yield "candidates twice as loud as priced", replace(quiet, trials=selected(kept).trials).audit()
    right = curved(kept)
    free = kept.ledger()
    _spend(free, right.trials)
    yield "curves that nobody pays for", replace(right, ledger=free).audit()
    yield "curves of one point more than the ledger holds", replace(right, curves=CURVES + 1).audit()


def cost(rounds: int = 5) -> tuple[float, float, float, float]:
    """Processor seconds of a trial of the quick start, and of its audits: first of its form, another, price of it.

    Medians; trials and audits in turn, in one thread.
    """
    torch.set_num_threads(1)
    spec = Spec.from_mapping(QUICK)
    data: Dataset = clipless.datasets.load(**spec.data_options(None))
    config = spec.space.resolve({})
    spent: dict[str, list[float]] = {"trial": [], "first": [], "another": []}

    def timed(what: str, call: Callable[[], object]) -> object:
        begun = time.process_time()
        found = call()
        spent[what].append(time.process_time() - begun)
        return found

    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as path:
            folder, forms = SweepFolder(path), set[Hashable]()
            (folder.path / "models").mkdir()
            run = TrialRun(
                trial="t0001", config=config, data=data, objectives=spec.objectives, seed=number, folder=folder.path
            )
            row = run.plan_row()
            epochs: list[EpochRow] = timed("trial", lambda run=run: list(run.epoch_rows()))  # type: ignore[assignment]
            point = next(p for e in reversed(epochs) for p in points_of("t0001", e, row.plan) if p.model)
            trial = Trial(id="t0001", config=config.to_json(), plan=row.plan)
            for what in ("first", "another"):
                timed(
                    what,
                    partial(audit_trial, folder, trial, point, Effort.CHEAP, seed=number, forms=forms, stacks=True),
                )
    trial_s, first, another = (median(seconds[1:]) for seconds in spent.values())  # the first round imports
    return trial_s, first, another, (first + 9 * another) / (16 * trial_s)


def main() -> None:
    """Print the tables; end with 1 if the audits do not keep what they promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--runs", type=int, default=20_000, help="of each accusation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept_all = True
    with tempfile.TemporaryDirectory() as path:
        kept = Kept(Path(path))
        if "tight" in options.parts:
            print_tight(kept)
        if "wrong" in options.parts:
            kept_all &= not print_wrong(kept)
        if "right" in options.parts:
            kept_all &= print_right(kept, options.seeds, options.runs)
    if "cost" in options.parts:
        trial, first, another, share = cost()
        print(
            f"\na trial takes {trial:.2f} s of the processor, its audit {first:.3f} s, that of another trial of its "
            f"form {another:.3f} s; those of 10 trials on the front {share:.1%} of 16 trials"
        )
    sys.exit(0 if kept_all else 1)


def print_tight(kept: Kept) -> None:
    """Print claim, attained lower bound and ratio."""
    print("| what | delta | claim | attained | ratio | worst |\n|---|---|---|---|---|---|")
    for name, make in SWEEPS.items():
        (found,) = make(kept, TRIAL).audit()
        cells = f"{found.delta:g} | {found.epsilon:.2f} | {found.attained:.2f} | {found.ratio:.2f}"
        print(f"| {name} | {cells} | {found.evidence['attack']} |", flush=True)


def print_wrong(kept: Kept) -> int:
    """Print wrong prices, and return how many went unnoticed."""
    print("\n| wrong price | claim | attained | of what nobody paid for | caught |\n|---|---|---|---|---|")
    missed = 0
    for name, found in wrong(kept):
        caught = any(one.contradicted for one in judge(found))
        missed += not caught
        whole, *free = found
        numbers = f"{whole.epsilon:.2f} | {whole.attained:.2f} | {free[0].attained if free else 0.0:.2f}"
        print(f"| {name} | {numbers} | {'yes' if caught else 'NO'} |", flush=True)
    return missed


def print_right(kept: Kept, seeds: int, runs: int) -> bool:
    """Print how often right prices are accused; return whether that is no more often than they may be."""
    prices.runs_for = lambda _: runs
    selection._REFERENCE = runs
    print("\n| right price | audits | accused | attained above the claim |\n|---|---|---|---|")
    accused = audits = 0
    for name, make in SWEEPS.items():
        priced = make(kept, SHORT)
        priced.ledger.answers = cache(priced.ledger.answers)  # type: ignore[method-assign]  # the same for all seeds
        rows = [one for seed in range(seeds) for one in priced.audit(seed)]
        blamed = sum(judge([one])[0].contradicted for one in rows)
        accused, audits = accused + blamed, audits + len(rows)
        above = sum(one.attained > one.epsilon for one in rows)
        print(f"| {name} | {len(rows)} | {blamed} | {above} |", flush=True)
    return bool(stats.binom.sf(accused - 1, audits, ACCUSATION) >= 1e-3)


if __name__ == "__main__":
    main()
