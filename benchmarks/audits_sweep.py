"""Do audits of private selection and of whole sweeps come near the claim, leave the right ones alone, and catch faults?

    python benchmarks/audits_sweep.py [--seeds 200] [--runs 40000]

Three tables: claim, attained lower bound and ratio of known mechanisms, through the ledger that prices them; how often
correct prices are accused over seeds, at most 5 % by design; and wrong prices, each caught. Then the cost of the audit
that every sweep ends with, beside the trial that it is of. Ends with 1 if a wrong price went unnoticed, or right ones
are accused more often than a chance of one in a thousand.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from scipy import stats
from sweeper.driver.trial_records import points_of

import clipless
from clipless.audits.audited import Effort
from clipless.audits.finding import ACCUSATION, Finding, judged
from clipless.datasets import Dataset
from clipless.privacy.accounting.private_selection import Distribution, Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits import prices, selection
from sweeper.audits.prices import audit_price
from sweeper.audits.trials import audit_trial
from sweeper.privacy.budget import cut_budget
from sweeper.privacy.exploration import cut_exploration
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.records import Trial, TrialPlan
from sweeper.search.space import resolve
from sweeper.spec.spec import Spec
from sweeper.spec.stages import StagePlan
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.trial import TrialRun

DELTA = 1e-5
TRIAL = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.2, steps=20, relation=Relation.ADD_OR_REMOVE_ONE)
SHORT = replace(TRIAL, steps=2)  # of many seeds
LAWS = {
    "geometric": Repetitions(distribution=Distribution.GEOMETRIC, mean=10.0),
    "logarithmic": Repetitions(distribution=Distribution.LOGARITHMIC, mean=10.0),
    "poisson": Repetitions(distribution=Distribution.POISSON, mean=10.0),
}
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

    def audit(self, seed: int = 0) -> Finding | None:
        """Attack its price."""
        keys = [(trial.id, 1, "") for trial in self.trials]
        return audit_price(self.ledger, self.trials, keys, DELTA, repetitions=self.law, seed=seed)


@dataclass
class Kept:
    """Ledgers in a folder that is gone at the end."""

    folder: Path
    made: int = field(default=0)

    def ledger(self) -> Ledger:
        """Return a new one."""
        self.made += 1
        return Ledger(self.folder / f"{self.made}.jsonl")


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
    ledger, budget = kept.ledger(), cut_budget(3.0, DELTA, STAGES, event)
    ledger.set_budget(budget)
    trials = tuple(trial_of(n, budget.slot_of(f"t{n:04d}")) for n in range(1, budget.trials + 1))
    _spend(ledger, trials, [budget.stage_of(n) for n in range(1, budget.trials + 1)])
    return Priced(ledger=ledger, trials=trials)


def selected(kept: Kept, event: PoissonGaussian = TRIAL, law: str = "geometric") -> Priced:
    """The best of a secret random number of trainings."""
    ledger = kept.ledger()
    ledger.select(Terms(event=event, repetitions=LAWS[law]))
    return Priced(ledger=ledger, trials=(trial_of(1, event),), law=LAWS[law])


def explored(kept: Kept, event: PoissonGaussian = TRIAL, law: str = "geometric") -> Priced:
    """A selection at a whisper, and the final that trains its winner aloud."""
    ledger, budget = kept.ledger(), cut_exploration(3.0, DELTA, LAWS[law], event, share=0.35)
    if budget.selection is None:
        raise AssertionError("a budget without its selection")
    ledger.set_budget(budget)
    ledger.select(budget.selection)
    trials = trial_of(1, budget.selection.event), trial_of(2, budget.stages[0].slot)
    _spend(ledger, trials[1:], [0])
    return Priced(ledger=ledger, trials=trials, law=LAWS[law])


def _spend(ledger: Ledger, trials: tuple[Trial, ...], stages: list[int] | None = None) -> None:
    for number, trial in enumerate(trials):
        if trial.plan is not None:
            ledger.open(trial.id, trial.plan.event, stage=None if stages is None else stages[number])
            ledger.close(trial.id, trial.plan.event.steps)


SWEEPS: Mapping[str, Callable[[Kept, PoissonGaussian], Priced]] = {
    "a whole sweep, 8 trainings composed": composed,
    "a whole sweep, 12 + 3 + 1 in slots": staged,
    **{f"private selection, {law}, mean 10": partial(selected, law=law) for law in LAWS},
    **{f"selection at a whisper and final, {law}": partial(explored, law=law) for law in ("geometric", "logarithmic")},
}


def wrong(kept: Kept) -> Iterator[tuple[str, Finding | None]]:
    """Yield wrong prices, each with what the audit finds."""
    right = staged(kept)
    final_alone = kept.ledger()
    _spend(final_alone, right.trials[-1:])
    yield "explorers left out of the price", replace(right, ledger=final_alone).audit()
    one = kept.ledger()
    _spend(one, composed(kept).trials[:1])
    yield "one training of eight in the ledger", replace(composed(kept), ledger=one).audit()
    for law in LAWS:
        quiet = selected(kept, replace(TRIAL, noise_multiplier=2.0 * TRIAL.noise_multiplier), law)
        loud = replace(quiet, trials=selected(kept, TRIAL, law).trials)
        yield f"candidates twice as loud as priced, {law}", loud.audit()


def cost() -> tuple[float, float]:
    """Seconds of the audit that a sweep ends with, and of the trial that it is of: a quick start's."""
    torch.set_num_threads(1)
    spec = Spec.from_mapping(QUICK)
    data: Dataset = clipless.datasets.load(**spec.data_options(None))
    config = resolve(spec, {})
    with tempfile.TemporaryDirectory() as path:
        folder = SweepFolder(path)
        (folder.path / "models").mkdir()
        run = TrialRun(trial="t0001", config=config, data=data, objectives=spec.objectives, seed=0, folder=folder.path)
        row, begun = run.plan_row(), time.perf_counter()
        epochs = list(run.epoch_rows())
        trained = time.perf_counter() - begun
        point = next(p for e in reversed(epochs) for p in points_of("t0001", e, row.plan) if p.model)
        trial = Trial(id="t0001", config=config.to_json(), plan=row.plan)
        audit_trial(folder, trial, point, Effort.CHEAP)  # imports
        begun = time.perf_counter()
        audit_trial(folder, trial, point, Effort.CHEAP)
        return time.perf_counter() - begun, trained


def main() -> None:
    """Print the tables; end with 1 if the audits do not keep what they promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--runs", type=int, default=40_000, help="of each accusation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as path:
        kept = Kept(Path(path))
        print("| what | delta | claim | attained | ratio | worst |\n|---|---|---|---|---|---|")
        for name, make in SWEEPS.items():
            found = make(kept, TRIAL).audit()
            if found is not None:
                cells = f"{found.delta:g} | {found.epsilon:.2f} | {found.attained:.2f} | {found.ratio:.2f}"
                print(f"| {name} | {cells} | {found.evidence['attack']} |", flush=True)
        print("\n| wrong price | claim | attained | caught |\n|---|---|---|---|")
        missed = 0
        for name, found in wrong(kept):
            caught = found is not None and judged([found])[0].contradicted
            missed += not caught
            numbers = "" if found is None else f"{found.epsilon:.2f} | {found.attained:.2f}"
            print(f"| {name} | {numbers} | {'yes' if caught else 'NO'} |", flush=True)
        prices.runs_for = lambda _: options.runs
        selection._REFERENCE = options.runs
        print("\n| right price | audits | accused | attained above the claim |\n|---|---|---|---|")
        accused = audits = 0
        for name, make in SWEEPS.items():
            priced = make(kept, SHORT)
            rows = [one for seed in range(options.seeds) if (one := priced.audit(seed)) is not None]
            blamed = sum(judged([one])[0].contradicted for one in rows)
            accused, audits = accused + blamed, audits + len(rows)
            above = sum(one.attained > one.epsilon for one in rows)
            print(f"| {name} | {len(rows)} | {blamed} | {above} |", flush=True)
    audited, trained = cost()
    print(f"\nthe audit of a trial takes {audited:.2f} s, {audited / trained:.1%} of the {trained:.1f} s of the trial")
    too_often = stats.binom.sf(accused - 1, audits, ACCUSATION) < 1e-3
    sys.exit(1 if missed or too_often else 0)


if __name__ == "__main__":
    main()
