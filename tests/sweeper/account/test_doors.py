"""Every place of the sweeper that may draw noise for private rows, and what charges it to the account of the data."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
NOISY = {"SecureSource", "contribution", "fit", "fit_stack", "release_certified", "release_class_scores",
         "release_classes", "release_curves", "release_scores", "release_sketch", "upload"}  # fmt: skip
AT_DRAW, AT_TEST, AT_SKETCH = "SpendingRecord.draw", "SpendingRecord.pay_test", "SpendingRecord.enter_sketch"
AT_CANDIDATE, NO_ROW = "Candidates.on_draw, of the whole selection", "no private row is read"
AT_PAYMENT = "Paid.pay"  # of parties without an account result and command say that nothing adds it up
CHARGED_BY = {
    "sweeper/backend/workers/stacking.py": AT_DRAW,
    "sweeper/driver/driver.py": AT_SKETCH,
    "sweeper/driver/recording/held_out_scores.py": AT_TEST,
    "sweeper/driver/selection/private_run.py": AT_CANDIDATE,
    "sweeper/driver/sketch.py": AT_SKETCH,
    "sweeper/driver/stages.py": NO_ROW,  # fits a configuration to dimensions
    "sweeper/driver/warm_start.py": NO_ROW,
    "sweeper/federated/party.py": AT_PAYMENT,
    "sweeper/planning/estimate.py": NO_ROW,  # rows of zeros
    "sweeper/planning/preview.py": NO_ROW,
    "sweeper/privacy/selection.py": AT_CANDIDATE,
    "sweeper/results/importance.py": NO_ROW,  # a forest on configurations
    "sweeper/trials/curves.py": AT_TEST,
    "sweeper/trials/scores.py": AT_DRAW,
    "sweeper/trials/trial.py": AT_DRAW,
}


def noisy_calls():
    found = defaultdict(set)
    for path in sorted((ROOT / "sweeper").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in NOISY:
                    found[str(path.relative_to(ROOT))].add(name)
    return found


def test_every_place_that_draws_noise_is_known_with_what_charges_it():
    assert set(noisy_calls()) == set(CHARGED_BY), (
        "say in this test what charges it to the account, and see that it does"
    )
