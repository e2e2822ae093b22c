"""The privacy card: what it has, how it is made, and the words for it."""
