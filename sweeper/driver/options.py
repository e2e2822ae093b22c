"""How a sweep is run, as opposed to what it is, and what ``sweep.json`` says of both."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import SweeperError
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.records import SweepStatus
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.names import version_tags

TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"


def _ignore(_: object) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a sweep is run, as opposed to what it is.

    Attributes:
        out: where the sweep's folder is made; a path or a text, as ``into`` and ``data_dir`` are.
        into: the folder itself, if it was made beforehand for a new sweep.
        data_dir: local copies of data sets.
        tracking: MLflow tracking URI; by default that of the environment, ``MLFLOW_TRACKING_URI``, for a sweep that
            begins, and without one a SQLite file in ``out`` for all sweeps there.
        page: address of the sweep's live page, to which its run at the tracking store links.
        cluster: address of a Ray cluster; by default one is started on this machine.
        storage: URL through which nodes that do not share ``out`` exchange checkpoints and models.
        concurrent: processes at once from now on, of a sweep that is resumed or extended.
        spender: whose share of the account of the data the sweep takes from; by default the user of this machine.
        duration_is_seen: consents that others see how long a private selection takes.
        tell: is given the price of the sweep, as one line, before anything is trained.
        show: is given the state of the sweep about twice a second.
    """

    out: Path = Path("sweeps-out")
    into: Path | None = None
    data_dir: Path | None = None
    tracking: str | None = None
    cluster: str | None = None
    storage: str | None = None
    page: str | None = None
    concurrent: int | None = None
    spender: str | None = None
    duration_is_seen: bool = False
    tell: Callable[[str], None] = _ignore
    show: Callable[[SweepProgress], None] = _ignore

    def __post_init__(self) -> None:
        for name in ("out", "into", "data_dir"):  # a text is a path too
            if isinstance(given := getattr(self, name), str):
                object.__setattr__(self, name, Path(given))


def with_environment(options: Options) -> Options:
    """Give a sweep that begins the store that the environment names, if the user names none.

    Raises:
        SweeperError: the environment names it with a password, which would be recorded.
    """
    named = os.environ.get(TRACKING_VARIABLE) or None
    if named is None or options.tracking not in (None, named):
        return options
    if urlsplit(named).password:
        raise SweeperError(
            f"Expected {TRACKING_VARIABLE} without a password, which the sweep would record; set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or name another store with --tracking"
        )
    return replace(options, tracking=named)


def with_recorded(options: Options, manifest: Manifest) -> Options:
    """Give options that the user omits the values that the sweep was started with."""
    return replace(
        options,
        data_dir=options.data_dir or (Path(manifest.data_dir) if manifest.data_dir else None),
        tracking=options.tracking or manifest.tracking,
        cluster=options.cluster or manifest.cluster,
        storage=options.storage or manifest.storage,
        page=options.page or manifest.page,
    )


def manifest_of(
    plan: SweepPlan, options: Options, folder: SweepFolder, status: SweepStatus, reason: str = "", *, id_: str | None
) -> Manifest:
    """Return what ``sweep.json`` says of a run of the sweep with this id."""
    spec = plan.spec
    return Manifest(
        name=plan.name,
        status=status,
        reason=reason,
        spec=spec.values,
        overrides=spec.overrides,
        spec_hash=spec.digest,
        source=str(Path(spec.source).resolve()),
        versions=version_tags(),
        started=folder.path.name.removeprefix(f"{plan.name}-"),
        population=plan.population,
        claim=plan.claim.to_json(),
        course=plan.course,
        data_dir=None if options.data_dir is None else str(options.data_dir.resolve()),
        tracking=options.tracking,
        cluster=options.cluster,
        storage=options.storage,
        page=options.page,
        id=id_,
    )
