"""Accounting: from privacy events to epsilons. Each module holds one accountant or one way of using them."""
