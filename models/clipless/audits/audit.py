"""The audits of a training, one after the other, judged together."""

from clipless.audits.audited_training import AuditedTraining, Effort
from clipless.audits.finding import Finding, judge
from clipless.audits.noise import audit_noise
from clipless.audits.one_run import audit_one_run
from clipless.audits.step import audit_step


def audit_training(
    training: AuditedTraining, effort: Effort = Effort.CHEAP, *, seed: int | None = None
) -> tuple[Finding, ...]:
    """Attack the claim of a training: its step and its noise, and with `Effort.THOROUGH` a whole run.

    Args:
        training: whose claim is attacked.
        effort: how much the audits may cost.
        seed: of the search and of canaries' coins; by default from the operating system. Never of the noise.

    Returns:
        A finding for each attack, judged together (`clipless.audits.finding.judge`).

    Guarantees:
        A training that keeps its claim is accused with a chance of at most 5 %. Looks at ``training.rows`` alone.
    """
    found = [audit_step(training, effort, seed=seed), audit_noise(training, effort)]
    if effort is Effort.THOROUGH:
        found += audit_one_run(training, seed=seed)
    return judge(found)
