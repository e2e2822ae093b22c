"""The final of a private selection: the configuration of its winner, trained in sight once the selection has ended.

The winner trained with much noise, the final fills the slot of the budget beside the selection. Its configuration is
that of the winner, moved from one signal to the other as between the stages of any sweep (`sweeper.search.transfer`).
"""

from collections.abc import Mapping
from typing import Any

from sweeper.driver.recording.trial_records import TrialRecords
from sweeper.driver.warm_start import fit
from sweeper.errors import RecordError
from sweeper.privacy.pricing import signal_of
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.privacy.spending import Spending
from sweeper.search.optuna_search import Search
from sweeper.search.transfer import transfer_proposal
from sweeper.specification.fields.nested import leaves
from sweeper.specification.fields.ranges import Scalar
from sweeper.specification.search_space import SearchSpace

TRIALS = 2  # of a sweep that selects privately within a budget: the winner and its final


class FinalSearch:
    """Proposes the final, which depends on nothing but the record of the winner: a kill changes nothing of it."""

    def __init__(self, search: Search, spending: Spending, space: SearchSpace, records: TrialRecords) -> None:
        self._search, self._spending, self._space, self._records = search, spending, space, records

    @property
    def asked(self) -> int:
        """How many trials there are, the winner among them."""
        return self._search.asked

    @property
    def open(self) -> dict[str, dict[str, Any]]:
        """The proposal of the final, until it has ended."""
        return self._search.open

    def ask(self) -> str:
        """Propose the final."""
        self._search.enqueue(self._proposal())
        return self._search.ask()

    def _proposal(self) -> Mapping[str, Scalar]:
        winner = self._records.trials.get(WINNER_TRIAL)
        proposal = None if winner is None else fit(dict(leaves(winner.config)), self._space.dimensions)
        if proposal is None:
            raise RecordError(
                f"Expected the winner of the private selection, {WINNER_TRIAL}, with a configuration of the spec in "
                "trials.jsonl, got none; restore it"
            )
        candidate, final = self._spending.named_slots.values()
        return transfer_proposal(proposal, self._space, signal_of(candidate), signal_of(final))
