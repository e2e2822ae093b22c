"""The evaluation of ``sweeper evaluate --federated``, here or with servers elsewhere."""

from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.federated.evaluation import FederatedEvaluation, ask
from sweeper.federated.federation import ANALYST, read_federation
from sweeper.federated.keys import read_key
from sweeper.federated.local import evaluate_here
from sweeper.federated.party import check_curves
from sweeper.results.models.predict import load_predictor
from sweeper.store.jsonl import replace_file, to_text


def evaluate(model: Path, file: Path, key: Path | None = None) -> FederatedEvaluation:
    """Evaluate a model over the parties of a file.

    Args:
        model: a folder that ``sweeper pick`` wrote, or of a sweep.
        file: of the federation; if its servers have no addresses, all run here.
        key: of who is told the result, for servers elsewhere.

    Raises:
        SweeperError: the file, the key or a server cannot be used.
        clipless.errors.CliplessError: there is no result.
    """
    federation = read_federation(file)
    check_curves(federation, load_predictor(model))
    if federation.is_local:
        return evaluate_here(federation, model)
    if key is None:
        raise SweeperError("Expected the private key of who is told the result, for servers elsewhere (--key)")
    identity = read_key(key)
    if identity.public != federation.key_of(ANALYST):
        raise SweeperError("Expected the private key of the analyst in the file, got another one (--key)")
    return ask(federation, identity)


def write_evaluation(found: FederatedEvaluation, path: Path) -> None:
    """Write an evaluation as JSON.

    Raises:
        RecordError: not written.
    """
    replace_file(path, to_text(found.to_json(), indent=2) + "\n")
