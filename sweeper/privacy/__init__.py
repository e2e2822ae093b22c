"""What a sweep spends and claims: the ledger, prices, claims, cards, and noisy scores."""
