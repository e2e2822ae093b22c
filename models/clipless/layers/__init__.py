"""Layers with bound rules; no bounds in here."""

from clipless.layers.activation import Abs, GroupSort, Householder, ReLU, Sigmoid, Softplus, Tanh
from clipless.layers.clipping import ClipGradient
from clipless.layers.conv import Conv1d, Conv2d
from clipless.layers.input import InputBall
from clipless.layers.linear import Dense
from clipless.layers.normalization import GroupNorm, LayerCentering
from clipless.layers.pooling import AvgPool2d, GlobalL2Pool2d, L2Pool2d, MaxPool2d
from clipless.layers.residual import Residual
from clipless.layers.scattering import Scattering2d
from clipless.layers.shape import Flatten, SpaceToDepth, SwapAxes, Tokens
from clipless.layers.statistics import ScaleByQuantile, Standardise

__all__ = [
    "Abs",
    "AvgPool2d",
    "ClipGradient",
    "Conv1d",
    "Conv2d",
    "Dense",
    "Flatten",
    "GlobalL2Pool2d",
    "GroupNorm",
    "GroupSort",
    "Householder",
    "InputBall",
    "L2Pool2d",
    "LayerCentering",
    "MaxPool2d",
    "ReLU",
    "Residual",
    "ScaleByQuantile",
    "Scattering2d",
    "Sigmoid",
    "Softplus",
    "SpaceToDepth",
    "Standardise",
    "SwapAxes",
    "Tanh",
    "Tokens",
]
