"""Ready architectures: Lipschitz networks whose every layer has a bound rule."""

from clipless.zoo.builders import ARCHITECTURES, Architecture, build
from clipless.zoo.convnet import convnet
from clipless.zoo.lenet import lenet
from clipless.zoo.mixer import mixer
from clipless.zoo.mlp import mlp
from clipless.zoo.parts import ACTIVATIONS, POOLINGS
from clipless.zoo.patch_net import patch_net
from clipless.zoo.resnet import resnet, wide_resnet
from clipless.zoo.scattering_net import scattering
from clipless.zoo.vgg import vgg

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "POOLINGS",
    "Architecture",
    "build",
    "convnet",
    "lenet",
    "mixer",
    "mlp",
    "patch_net",
    "resnet",
    "scattering",
    "vgg",
    "wide_resnet",
]
