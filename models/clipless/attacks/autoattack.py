"""AutoAttack in the Euclidean ball, through the Adversarial Robustness Toolbox; an optional dependency.

Shape letters: B batch, K logits.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from clipless.attacks.pgd import check_radius, into_ball
from clipless.certificates.certify import float64_logits
from clipless.errors import UnsupportedError
from clipless.network import Network

# The toolbox tiles an image with windows of a fifth of its side, which must be two elements or more.
_SMALLEST_SIDE = 10


@final
@dataclass(frozen=True, slots=True)
class AutoAttack:
    """The ensemble of Croce and Hein (2020, arXiv 2003.01690) as the toolbox has it: APGD, DeepFool, Square.

    APGD on the cross-entropy always, on the difference of logits ratio from 3 logits on, Square (which moves windows
    of an image) on square (C, H, W) images of side 10 or more. Works in float32 and in the ball without a box; what
    comes back is projected onto the ball in float64. The toolbox draws from numpy's global generator: results vary
    between calls.

    Iterations are those of APGD and DeepFool, restarts those of APGD and Square, queries those of Square.
    """

    iterations: int = 100
    restarts: int = 1
    queries: int = 5000
    batch_size: int = 256

    def __call__(self, model: Network, x: Tensor, target_B: Tensor, radius: float) -> Tensor:
        """Return float64 inputs within ``radius``, wrongly decided where an attack of the ensemble succeeded.

        The (B, ...) inputs are finite, targets int64 labels, the radius is in units of ``x``; the model stays as it is.

        Raises:
            UnsupportedError: the toolbox is not installed.
            ValueError: a radius that is not positive and finite, or inputs that are not finite.
        """
        check_radius(radius)
        if not bool(x.isfinite().all()):
            raise ValueError("Expected finite inputs for AutoAttack, got some that are not")
        toolbox = _toolbox()
        pair = _PairOfLogits(deepcopy(model)).float()
        classifier = toolbox.PyTorchClassifier(
            model=pair,
            loss=nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=max(2, float64_logits(model, x[:1]).shape[1]),
            clip_values=(float(x.min()) - radius, float(x.max()) + radius),
            device_type="cpu" if x.device.type == "cpu" else "gpu",
        )
        ensemble = toolbox.AutoAttack(
            estimator=classifier,
            norm=2,
            eps=float(radius),
            eps_step=2.0 * radius,
            attacks=self._attacks(toolbox, classifier, tuple(x.shape[1:]), radius),
            batch_size=self.batch_size,
        )
        found = ensemble.generate(x=x.float().cpu().numpy(), y=target_B.cpu().numpy().astype(np.int64))
        return into_ball(torch.from_numpy(found).to(x.device).double(), x.double(), radius)

    @staticmethod
    def check_installed() -> None:
        """Raise UnsupportedError unless the toolbox is installed, before an attack."""
        _toolbox()

    def _attacks(self, toolbox: Any, classifier: Any, shape: tuple[int, ...], radius: float) -> list[Any]:
        losses = ["cross_entropy", *(["difference_logits_ratio"] if classifier.nb_classes > 2 else [])]
        attacks = [
            toolbox.AutoProjectedGradientDescent(
                estimator=classifier,
                norm=2,
                eps=radius,
                eps_step=2.0 * radius,
                max_iter=self.iterations,
                nb_random_init=self.restarts,
                batch_size=self.batch_size,
                loss_type=loss,
                verbose=False,
            )
            for loss in losses
        ]
        attacks.append(
            toolbox.DeepFool(
                classifier=classifier,
                max_iter=self.iterations,
                epsilon=1e-3,
                nb_grads=min(10, classifier.nb_classes),
                batch_size=self.batch_size,
                verbose=False,
            )
        )
        if len(shape) == 3 and shape[1] == shape[2] >= _SMALLEST_SIDE:
            attacks.append(
                toolbox.SquareAttack(
                    estimator=classifier,
                    norm=2,
                    max_iter=self.queries,
                    eps=radius,
                    nb_restarts=self.restarts,
                    batch_size=self.batch_size,
                    verbose=False,
                )
            )
        return attacks


class _PairOfLogits(nn.Module):
    """A single logit as two, zero first."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits_BK: Tensor = self.model(x)
        if logits_BK.shape[1] > 1:
            return logits_BK
        return torch.cat([torch.zeros_like(logits_BK), logits_BK], dim=1)


def _toolbox() -> Any:
    try:
        import multiprocess  # noqa: F401  the toolbox imports it when it attacks
        from art.attacks import evasion
        from art.estimators import classification
    except ImportError as error:
        raise UnsupportedError(
            f"AutoAttack needs the Adversarial Robustness Toolbox ({error}): pip install 'sweeper[attacks]'"
        ) from error
    names = ("AutoAttack", "AutoProjectedGradientDescent", "DeepFool", "SquareAttack")
    parts = {name: getattr(evasion, name) for name in names}
    return type("Toolbox", (), {**parts, "PyTorchClassifier": classification.PyTorchClassifier})
