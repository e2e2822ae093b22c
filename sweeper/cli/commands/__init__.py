"""Commands of the ``sweeper`` program. A module holds a group of them, in `app`, and is found by being here."""
