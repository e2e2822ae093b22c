"""Attacks: the empirical upper side of a guarantee. They can refute a claim; they never prove one.

Every result here is computed from rows: on private rows it is a release. Public rows only.
"""

from clipless.attacks.autoattack import AutoAttack
from clipless.attacks.membership import MembershipScore, threshold_attack
from clipless.attacks.pgd import PGD, EvasionAttack

__all__ = ["PGD", "AutoAttack", "EvasionAttack", "MembershipScore", "threshold_attack"]
