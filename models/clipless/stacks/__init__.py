"""Many trainings of one shape as one: stacks."""

from clipless.stacks.member import Member, shape_key, stackable
from clipless.stacks.sizes import stack_size
from clipless.stacks.stack import Stack, fit_stack

__all__ = ["Member", "Stack", "fit_stack", "shape_key", "stack_size", "stackable"]
