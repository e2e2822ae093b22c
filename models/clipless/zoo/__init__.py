"""Ready architectures: Lipschitz networks whose every layer has a bound rule."""

from clipless.zoo.builders import ARCHITECTURES, Architecture, build
from clipless.zoo.convnet import convnet
from clipless.zoo.mlp import mlp
from clipless.zoo.patch_net import patch_net

__all__ = ["ARCHITECTURES", "Architecture", "build", "convnet", "mlp", "patch_net"]
