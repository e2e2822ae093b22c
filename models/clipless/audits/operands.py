"""Rows that make sums move most: what the searches for neighbours try.

Shape letters: B rows.
"""

import numpy as np
import torch
from torch import Tensor

PATTERNS = ("hovering", "walk", "equal", "magnitudes")


def shares(count: int, pattern: str, generator: np.random.Generator) -> Tensor:
    """Contributions of rows as shares of the largest, (B,)."""
    if pattern == "hovering":  # one row keeps the sum above a power of two, without it later ones round more finely
        boundary = 2.0 ** max(0, int(np.log2(max(count / 2, 1))))
        climb = min(count, int(boundary))
        step = float(np.spacing(np.float32(boundary)))
        drift = np.resize([0.625 * step, -0.375 * step], count - climb)
        values = np.concatenate([np.ones(climb), drift])
    elif pattern == "walk":
        values = generator.uniform(-1.0, 1.0, count)
    elif pattern == "equal":
        values = np.full(count, generator.uniform(0.3, 1.0))
    else:
        values = generator.choice([-1.0, 1.0], count) * 10.0 ** generator.uniform(-8.0, 0.0, count)
    return torch.from_numpy(values).float()


def operand(count: int, shape: tuple[int, ...], varied: bool, generator: np.random.Generator) -> Tensor:
    """Rows (B, ...): one of two kinds of flat ones, a spike, or noise that differs from row to row if ``varied``."""
    kind = generator.integers(4)
    if kind == 0:
        row = torch.ones(1, *shape)
    elif kind == 1:
        row = torch.zeros(1, int(np.prod(shape)))
        row[0, generator.integers(row.shape[1])] = 1.0
        row = row.view(1, *shape)
    else:
        drawn = generator.standard_normal((count if varied else 1, *shape))
        row = torch.from_numpy(drawn * (1.0 if kind == 2 else 10.0 ** generator.uniform(-12.0, 12.0))).float()
    return row.expand(count, *shape).clone()
