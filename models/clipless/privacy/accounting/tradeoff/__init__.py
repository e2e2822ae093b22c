"""What an attacker can tell by what was released: the trade-off function of a privacy profile."""
