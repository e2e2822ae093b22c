"""Of which shapes do results depend on the place of a row? Before and after kernels and passes that do not look at it.

    python benchmarks/places.py [--part layers|passes|attack] [--layers 2000] [--seed 0] [--threads 1 2]
        [--cbwr AUTO,STRICT --sizes even]

* layers: random layers of every kind (`_place_shapes.py`), float32 both ways and float64 forwards
* passes: the whole private pass of every architecture of the zoo, by every method, with its exact sums
* attack: empty rows that join rows at kinks (`_place_attacks.py`), under kernels that look at places and that do not

"Before": MKL_CBWR is unset, and a pass has any number of rows; "after": MKL_CBWR=AUTO,STRICT, as `import clipless` sets
it, and passes of whole vectors. ``--cbwr`` and ``--sizes`` ask for one other setting ("unset" is one). MKL reads the
variable once, so that each setting has a process of its own. A shape *depends* where a pass that is filled with copies
of one made-up row, of 24, gives any bit that differs between them. `clipless.row_independence.is_alone` is asked of all
of these, and of every fourth of the other layers. Ends with 1 if it passes one that depends, or if the settings of the
product leave one.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

CHILD = "--child"
UNSET = "unset"


@dataclass(frozen=True)
class Setting:
    """How kernels and passes are chosen.

    Attributes:
        name: in the table.
        cbwr: MKL_CBWR, or "unset".
        even: whether passes are whole vectors of rows.
    """

    name: str
    cbwr: str
    even: bool


BEFORE, AFTER = Setting("before", UNSET, False), Setting("after", "AUTO,STRICT", True)
ATTACKED = (AFTER, Setting("OFF", "OFF", True), Setting("AVX2", "AVX2", True))


def asked(part: str, setting: Setting, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Let a process of its own look at everything in one setting."""
    given = {"part": part, "setting": asdict(setting), "threads": threads, "layers": options.layers}
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    if setting.cbwr != UNSET:
        environment["MKL_CBWR"] = setting.cbwr
    command = [sys.executable, __file__, CHILD, json.dumps(given | {"seed": options.seed})]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(given: dict[str, Any]) -> None:
    """Look at everything in the setting of this process, and print what was found."""
    import torch

    torch.set_num_threads(given["threads"])
    torch.ones(64, 64) @ torch.ones(64, 64)  # MKL reads its variable here, before clipless sets it
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    setting = Setting(**given["setting"])
    if given["part"] == "attack":
        from _place_attacks import attacks

        print(json.dumps({"attacks": attacks()}))
        return
    counts, lists = Counter[str](), {"missed": [], "strict": [], "dependent": []}
    for kind, name, depends, refused in looked_at(given, even=setting.even):
        counts[f"{kind}/shapes"] += 1
        counts[f"{kind}/any"] += any(depends.values())
        for what, found in depends.items():
            counts[f"{kind}/{what}"] += found
            lists["dependent"] += [f"{name}: {what}"] * found
        counts[f"{kind}/asked"] += bool(refused)
        lists["missed"] += [f"{name}: {what}" for what in depends if depends[what] and not refused[what]]
        lists["strict"] += [
            f"{name}: {what}"
            for what, said in refused.items()
            if said and not any(depends.get(other) for other in _together(what))
        ]
    print(json.dumps({"counts": counts, **lists}))


def _together(what: str) -> tuple[str, ...]:
    """Return what one run of the product's test looks at."""
    from _place_shapes import BACKWARD, DOUBLE, FORWARD, SUMS

    return (DOUBLE,) if what == DOUBLE else (FORWARD, BACKWARD, SUMS)


def looked_at(given: dict[str, Any], *, even: bool) -> Iterator[tuple[str, str, dict[str, bool], dict[str, bool]]]:
    """Yield kind, name, what depends on places and what the product's test refuses."""
    import _place_shapes as shapes

    if given["part"] == "layers":
        for shape in shapes.shapes(given["layers"], given["seed"]):
            verdict = shapes.judged(shape, even=even)
            yield shape.kind, shape.name, verdict.depends, verdict.refused
        return
    for name in shapes.SMALL:
        for method in shapes.METHODS:
            for usual in shapes.USUAL[: given["layers"]]:
                verdict = shapes.judged_pass(name, method, usual, even=even)
                yield name, f"{name}, {method}, {usual} rows", verdict.depends, verdict.refused


def table(found: dict[tuple[str, int], dict[str, Any]], cells: Sequence[str]) -> str:
    """Markdown: a line for each kind; in each setting how many shapes depend on places, by what of them."""
    counts = [one["counts"] for one in found.values()]
    kinds = list(dict.fromkeys(name.split("/")[0] for name in counts[0]))
    heads = " | ".join(f"{name}, {threads} thread{'s' * (threads > 1)}" for name, threads in found)
    lines = [f"| kind | shapes | {heads} |", "|---|---|" + "---|" * len(found)]
    totals = [Counter[str]() for _ in counts]
    for kind in kinds:
        own = [{c: one.get(f"{kind}/{c}", 0) for c in ("shapes", *cells)} for one in counts]
        for total, values in zip(totals, own, strict=True):
            total.update(values)
        lines.append(_line(kind, own, cells))
    return "\n".join([*lines, _line("all", totals, cells)])


def _line(kind: str, counts: Sequence[Any], cells: Sequence[str]) -> str:
    shown = " | ".join(" / ".join(f"{own[cell]:,}" for cell in cells) for own in counts)
    return f"| {kind} | {counts[0]['shapes']:,} | {shown} |"


def main() -> None:
    """Print the tables; end with 1 for a fault."""
    if sys.argv[1:2] == [CHILD]:
        child(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("layers", "passes", "attack"))
    parser.add_argument("--layers", type=int, default=2000, help="random layers; sizes of each pass of the zoo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cbwr")
    parser.add_argument("--sizes", choices=("any", "even"), default="even")
    options = parser.parse_args()
    settings = [BEFORE, AFTER]
    if options.cbwr is not None:
        settings = [Setting(f"{options.cbwr}, {options.sizes} sizes", options.cbwr, options.sizes == "even")]
    faults = 0
    for part in ("layers", "passes", "attack") if options.part is None else (options.part,):
        start = time.monotonic()
        faults += attacked(options) if part == "attack" else dependent(part, settings, options)
        print(f"\n({part}: {time.monotonic() - start:.0f} s)\n", flush=True)
    sys.exit(1 if faults else 0)


def dependent(part: str, settings: Sequence[Setting], options: argparse.Namespace) -> int:
    """Print a table of layers or passes; return the number of faults."""
    found = {
        (setting.name, threads): asked(part, setting, threads, options)
        for setting in settings
        for threads in options.threads
    }
    cells = ("any", "float32 forwards", "float32 backwards", "float64 forwards")
    cells = cells if part == "layers" else ("any", "float32 forwards", "sums")
    print(f"Shapes that depend on places: {' / '.join(cells)}.\n")
    print(table(found, cells))
    faults = 0
    for (name, threads), one in found.items():
        tested = sum(value for what, value in one["counts"].items() if what.endswith("/asked"))
        left = len(one["dependent"]) if name == AFTER.name else 0
        faults += len(one["missed"]) + left
        print(
            f"\n{name}, {threads} threads: the product's test, asked of {tested} shapes, passes "
            f"{len(one['missed'])} of what depends on places and refuses "
            f"{len(one['strict'])} of which equal rows show nothing."
        )
        for what in ("missed", "strict", *(["dependent"] if left else [])):
            for line in one[what][:8]:
                print(f"* {what}: {line}")
    return faults


def attacked(options: argparse.Namespace) -> int:
    """Print what empty rows that join move; return the number of faults."""
    print("| MKL_CBWR | training | slots are chosen | others moved, packed | given the slots |")
    print("|---|---|---|---|---|")
    faults = 0
    for setting in ATTACKED:
        for row in asked("attack", setting, 1, options)["attacks"]:
            slotted = row["slotted"] is not None
            given = f"{row['slotted']:.4g} Delta" if slotted else ""
            print(f"| {setting.cbwr} | {row['training']} | {slotted} | {row['packed']:.4g} Delta | {given} |")
            faults += row["slotted"] != 0.0 if slotted else row["packed"] != 0.0
    return faults


if __name__ == "__main__":
    main()
