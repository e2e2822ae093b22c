"""The account of a data set, as the operator declares it: no client leaves it out, names another or goes past it.

One door: whatever is started through the service on a data set that has an account is charged to that account, in the
name of the owner of the token that asked for it.
"""

from pathlib import Path

from clipless import datasets
from sweeper.errors import AccountError, SweeperError
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import AccountAddress, find_account, parse_address
from sweeper.specification.search import Selection
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.sweep_folder import SweepFolder


def check_declared(settings: ServiceSettings) -> None:
    """Refuse declarations that name no data, or two accounts that clients could not tell apart.

    Raises:
        SweeperError: likewise.
    """
    for name, address in settings.accounts.items():
        if name not in datasets.available() and _table(settings, name) is None:
            raise SweeperError(
                f"Expected a data set by its registered name, or a table in --data-dir, got {name!r} (--account)"
            )
        for other in settings.accounts.values():
            if other.name == address.name and other != address:
                raise SweeperError(
                    f"Expected accounts of different names, got {address} and {other}; open one under another name "
                    "(--account)"
                )


def declared_account(spec: Spec, settings: ServiceSettings) -> AccountAddress | None:
    """Return the account that a spec whose files are found is charged to, ``None`` where its data have none."""
    if spec.data.name is not None:
        return settings.accounts.get(spec.data.name)
    table = Path(str(spec.data_options()["source"]))
    for name, address in settings.accounts.items():
        known = _table(settings, name)
        if known is not None and table.exists() and known.samefile(table):
            return address
    return None


def charged_account(spec: Spec, settings: ServiceSettings) -> str | None:
    """Return the account that the spec in a request is charged to; it may repeat its name, and say no other.

    Raises:
        SpecError: it names another account than its data have, or selects privately, which an account cannot charge.

    Guarantees:
        What a request names is never opened: a file or a database of its own choice would be charged instead.
    """
    declared, named = declared_account(spec, settings), spec.privacy.account
    if named is not None and (declared is None or parse_address(named).name != declared.name):
        expected = "no account, for the operator of the service declares none for these data"
        if declared is not None:
            expected = f"account {declared.name}, which the operator of the service declares for these data"
        raise spec.mistaken(expected, "privacy.account", parse_address(named).name, "leave it out")
    if declared is not None and spec.search.selection is Selection.PRIVATE:
        expected = f"no private selection on data of account {declared.name}, which charges what everybody sees"
        raise spec.mistaken(expected, "search.selection", spec.search.selection.value, "leave it out")
    return None if declared is None else str(declared)


def check_charged(folder: Path, settings: ServiceSettings) -> None:
    """Refuse a sweep on data that have an account to which it is not charged.

    Raises:
        AccountError: likewise.
        RecordError, SpecError: the sweep cannot be read.
    """
    if not settings.accounts:
        return
    sweep = SweepFolder(folder)
    has_begun = (folder / MANIFEST_NAME).is_file()
    spec = sweep.read_manifest(secret=True).read_spec() if has_begun else Spec.from_yaml(sweep.spec)
    declared, named = declared_account(spec, settings), spec.privacy.account
    charged = None if named is None else find_account(named, spec.source)
    if declared is not None and charged is not None and charged != declared and charged.name == declared.name:
        raise AccountError(
            f"Expected the store of account {declared.name} where {folder.name} was charged to it, got it in another "
            "place; the operator may leave a link to it there"
        )
    if declared is not None and charged != declared:
        raise AccountError(
            f"Expected a sweep that is charged to account {declared.name}, which its operator has declared for its "
            f"data since, got {folder.name}, which is not; submit another sweep"
        )


def _table(settings: ServiceSettings, name: str) -> Path | None:
    path = None if settings.data_dir is None else settings.data_dir / name
    return path if path is not None and path.is_file() else None
