"""Every page, by the rules of axe-core: names, roles, contrast, order, what the keyboard reaches; in both themes."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from sweeper.account.owner import close_account
from sweeper.records import SweepStatus, Trial, TrialStatus
from sweeper.specification.addresses import parse_address
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder
from tests.sweeper.account.accounts import DAY, make, wants

from .browsing import drawn
from .conftest import ENDED, PLAN, RUNNING
from .test_dynamic import describe

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

SECOND, FAILED, LOST = "second-20260105-120000", "failed-20260104-120000", "lost-20260103-120000"
FIGURES = (f"?sweep={RUNNING}", f"?sweep={ENDED}", f"?sweep={FAILED}")
TABS = tuple(f"?sweep={ENDED}&tab={tab}" for tab in ("robustness", "trials", "search", "price", "export"))
COMPARED = f"?sweep={ENDED}&tab=trials&table-trials=chosen%3Dt0001.t0003"
TRIALS = (COMPARED, f"?sweep={RUNNING}&trial=t0001", f"?sweep={ENDED}&trial=t0003")
ACCOUNTS = ("?accounts=1", "?account=clinic")
FORMS = ("?do=submit", "?do=sign-out", f"?sweep={ENDED}&do=extend", f"?sweep={ENDED}&do=delete")
FORMS += tuple(f"?sweep={RUNNING}&do={action}" for action in ("stop", "enqueue", "steer"))
FORMS += tuple(f"?sweep={RUNNING}&trial=t0001&do={action}" for action in ("stop-trial", "note", "tag"))
OTHERS = ("", f"?sweep={LOST}", f"?compare={ENDED}&compare={SECOND}", "?sweep=none", "login")
PAGES = (*FIGURES, *TABS, *TRIALS, *ACCOUNTS, *FORMS, *OTHERS)


@pytest.fixture(scope="module")
def axe():
    """The checker, a script."""
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: make setup")
    return (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def states(out, growing, write_sweep):
    """Sweeps that run, have ended, have failed, and lost their driver."""
    describe(growing.folder)
    for epoch in range(1, 6):
        growing.start("t0001")
        growing.add("t0001", epoch, 0.3 * epoch, 0.3 + 0.1 * epoch, 0.1 * epoch)
    write_sweep(out / SECOND, name="second", seed=1)
    ended = SweepFolder(out / ENDED)
    describe(ended, "completed")
    ended.save_trial(Trial(id="t0003", config={}, plan=PLAN, status=TrialStatus.COMPLETED))
    for name, status, reason in ((FAILED, "failed", "ValueError: no column Income"), (LOST, "running", "")):
        if name == FAILED:
            write_sweep(out / name, name="failed", seed=2)
        else:
            (out / name).mkdir()
        manifest = Manifest(name=name[:6], status=SweepStatus(status), reason=reason, spec={}, source="s")
        SweepFolder(out / name).write_manifest(manifest)


@pytest.fixture
def accounts(tmp_path):
    """An account that is closed, of which a sweep has reserved."""
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    make(address).reserve(wants("s1"))
    close_account(address, because="the study has ended", by="owner", at=DAY)
    return {"digits": address}


def violations(page, axe):
    """What axe-core finds: the rule and the first element that breaks it."""
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:150]}" for one in found]


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
@pytest.mark.usefixtures("states")
def test_no_page_breaks_a_rule_of_axe(width, scheme, visit, address, axe):
    page = visit(width=width, color_scheme=scheme)
    found = {}
    for search in PAGES:
        page.goto(f"{address}/{search}")
        if search in ("login", "?sweep=none"):
            page.wait_for_selector("h1:visible")
        else:
            page.wait_for_selector("[id^=part-]:not([hidden])[data-markup]")
        if search in FIGURES:
            drawn(page)
        page.wait_for_load_state("networkidle")
        found[search] = violations(page, axe)
    assert {search: one for search, one in found.items() if one} == {}
    page.goto(f"{address}/")
    page.wait_for_selector("#part-sweeps[data-markup]")
    planted = "<p style='color:#999;background:#aaa'>pale</p><button></button><input><img src='data:,'>"
    page.evaluate("(markup) => document.querySelector('main').insertAdjacentHTML('beforeend', markup)", planted)
    rules = {one.partition(":")[0] for one in violations(page, axe)}
    assert {"color-contrast", "button-name", "label", "image-alt"} <= rules
