"""A spec with the data that it names: what a sweep is planned of, by those who start, check, quote or resume one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import clipless
from clipless.datasets import Dataset, InputFormat
from sweeper.planning.account_plan import state_account
from sweeper.planning.defaults import complete
from sweeper.planning.make import make_sweep_plan
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.spending import Spending
from sweeper.specification.spec import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSpec:
    """A spec and its data.

    Attributes:
        spec: as its user wrote it, or as a sweep recorded it.
        data: that it names.
        encoding: how their rows are encoded.
        data_dir: where they were looked for.
    """

    spec: Spec
    data: Dataset
    encoding: InputFormat | None = None
    data_dir: Path | None = None

    @classmethod
    def of(cls, spec: Spec, data_dir: Path | None = None) -> Self:
        """Load the data of a spec.

        Raises:
            clipless.errors.CliplessError: they cannot be used.
        """
        options = spec.data_options(data_dir)
        data, encoding = clipless.datasets.load(**options), clipless.datasets.input_format(**options)
        return cls(spec=spec, data=data, encoding=encoding, data_dir=data_dir)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``clipless.datasets.load`` that its data were loaded with."""
        return self.spec.data_options(self.data_dir)

    def plan(self, *, spending: Spending | None = None, score_noise: tuple[float, float] | None = None) -> SweepPlan:
        """Return the plan of its sweep, what it leaves to its data chosen and its account stated.

        Arguments and errors as of `make_sweep_plan`, `complete` and `state_account`.
        """
        completed = complete(self.spec, self.data)
        return state_account(
            make_sweep_plan(completed, self.data, self.encoding, spending=spending, score_noise=score_noise)
        )

    def with_values(self, given: Mapping[str, Any]) -> Self:
        """Return the spec with other values by dotted name, which do not change its data.

        Raises:
            SpecError: the changed spec is not valid.
        """
        return replace(self, spec=self.spec.with_values(given))
