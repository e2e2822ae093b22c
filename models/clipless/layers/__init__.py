"""Layers with bound rules; no bounds in here."""

from clipless.layers.activation import GroupSort
from clipless.layers.conv import Conv2d
from clipless.layers.input import InputBall
from clipless.layers.linear import Dense
from clipless.layers.pooling import L2Pool2d
from clipless.layers.shape import Flatten

__all__ = ["Conv2d", "Dense", "Flatten", "GroupSort", "InputBall", "L2Pool2d"]
