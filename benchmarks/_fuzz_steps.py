"""What is to happen to a fuzzed sweep: it is run, perhaps broken off, resumed and extended."""

from _fuzz_chance import Chance, Section


def draw_steps(chance: Chance, *, kills: bool) -> list[Section]:
    """Return what happens to a sweep: a run, perhaps broken off and resumed, more trials, and its end."""
    steps: list[Section] = [{"do": "run", **_how(chance, kills=kills)}]
    if chance.maybe(0.1):
        steps.insert(0, {"do": "check"})
    if chance.maybe(0.35):
        steps[-1]["ends"] = _end(chance, kills=kills)
        steps += [{"do": "resume", **({"ends": _end(chance, kills=kills)} if chance.maybe(0.3) else {})}]
        steps += [{"do": "resume"}] if "ends" in steps[-1] else []
    if chance.maybe(0.25):
        steps[[step["do"] for step in steps].index("run")]["asks"] = _asks(chance)
    if chance.maybe(0.15):
        more: Section = {"do": "extend", "more": chance.whole(1, 2)}
        if chance.maybe(0.4):
            steps.append({"do": "enqueue", "values": {"training.learning_rate": 0.04}})
        if chance.maybe(0.3):
            steps += [more | {"ends": _end(chance, kills=kills)}, {"do": "resume"}]
        else:
            steps.append(more)
    if chance.maybe(0.1):
        steps.append({"do": "delete", "forget": chance.maybe(0.2)})
    return steps


def _how(chance: Chance, *, kills: bool) -> Section:
    if kills and chance.maybe(0.03):
        return {"how": "workers"}
    return {"how": "program" if chance.maybe(0.1) else "call"}


def _end(chance: Chance, *, kills: bool) -> Section:
    """Return how a run is broken off: at which write to the disk, and by what."""
    kind = chance.pick(["before", "after", "torn", "interrupt", "stop"] if kills else ["interrupt", "stop"])
    return {"kind": kind, "write": int(chance.pick([chance.whole(1, 12), chance.whole(1, 40), chance.whole(10, 90)]))}


def _asks(chance: Chance) -> list[Section]:
    """Return what is asked of the driver while it runs, each at a write to the disk."""
    asks: list[Section] = []
    for _ in range(chance.whole(1, 2)):
        what = chance.pick(["enqueue", "steer", "stop trial", "note"])
        asks.append({"what": what, "write": chance.whole(5, 40)})
    return asks
