"""What curves over parties cost: secure aggregation against function secret sharing, in bits and in seconds.

    python benchmarks/federated.py                       # both protocols, small sizes and large
    python benchmarks/federated.py --parties 100000 --thresholds 1000 --picture docs/images/federated.svg

One row for each party and one curve, as in figure 6.6.6 of the thesis "Enhancing differentially private machine
learning". Function sharing is run whole: all parties make their keys, and the two servers evaluate them side by side, a
process for each. Secure aggregation is run whole up to ``--most`` parties; beyond that every party's part grows with
their number, and only the bits are computed, by the formula that the small runs confirm. Masked words alone are what no
aggregation can do without; one whose parties share secrets with few neighbours comes near it.
"""

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from html import escape
from math import log10
from pathlib import Path

import numpy as np

from clipless.federated import function_sharing
from clipless.federated.aggregation import roster
from clipless.federated.comparison import evaluate, from_bytes, share, to_bytes
from clipless.federated.query import PartyRows, Query
from clipless.federated.ustat import Aggregation
from clipless.federated.words import from_words

SIZES = (8, 16, 32, 64, 128)
BITS_OF = (10, 100, 1000, 10_000)  # thresholds of the table of bits
PARTIES_OF = (100, 1000, 10_000, 100_000)


def query(thresholds: int, levels: int) -> Query:
    """One curve at thresholds spread over the domain."""
    spread = np.unique(np.round(np.linspace(0, 2**levels - 1, thresholds)).astype(np.int64))
    return Query(tuple(int(place) for place in spread), 1, 1.0)


def aggregation(parties: int, thresholds: int, levels: int) -> tuple[int, float]:
    """Run a secure aggregation; return its bits and seconds, all parties and the server in one process."""
    generator = np.random.default_rng(parties)
    one = np.zeros(1, dtype=np.int64)
    rows = {f"p{n}": PartyRows(generator.integers(0, 2**levels, 1), one) for n in range(parties)}
    began = time.perf_counter()
    found = Aggregation(colluding=parties // 3).release(query(thresholds, levels), rows)
    return found.bits, time.perf_counter() - began


def server(number: int, content: bytes, levels: int, thresholds: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """Evaluate all keys of one server; return its words and seconds."""
    began = time.perf_counter()
    words = evaluate(from_bytes(content, number, levels, 1), np.array(thresholds, dtype=np.int64))
    return words, time.perf_counter() - began


def sharing(parties: int, thresholds: int, levels: int) -> dict[str, float]:
    """Run function secret sharing; return bits and seconds of its parts."""
    places = np.random.default_rng(parties).integers(0, 2**levels, parties)
    asked, one = query(thresholds, levels), np.ones((1, 1), dtype=np.uint32)
    began = time.perf_counter()
    for place in places[:200]:
        share(np.array([place]), one, levels)
    alone = (time.perf_counter() - began) / min(200, parties)
    began = time.perf_counter()
    keys = [to_bytes(own).tobytes() for own in share(places, np.repeat(one, parties, axis=0), levels)]
    made = time.perf_counter() - began
    began = time.perf_counter()
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(server, n, keys[n], levels, asked.thresholds) for n in range(2)]
        (first, one_seconds), (second, other_seconds) = (one.result() for one in running)
    wall = time.perf_counter() - began
    expected = np.searchsorted(np.sort(places), asked.thresholds, side="right")
    assert (from_words(first + second)[:, 0] == expected).all()
    sent = 8 * sum(map(len, keys)) + 2 * 32 * (len(asked.thresholds) + asked.size)
    assert sent == function_sharing.communication_bits(parties, levels, asked)
    return {
        "bits": sent,
        "party": alone,
        "keys": made,
        "server": max(one_seconds, other_seconds),
        "wall": wall,
    }


def sharing_bits(parties: int, thresholds: int, servers: int = 2) -> float:
    """Bits of function sharing at the least domain for so many thresholds, for two servers or as if for more."""
    levels = max(2, (thresholds - 1).bit_length())
    return servers / 2 * function_sharing.communication_bits(parties, levels, query(thresholds, levels))


def words(thresholds: int) -> int:
    """The sums that give a curve of so many thresholds."""
    return query(thresholds, max(2, (thresholds - 1).bit_length())).size


def words_bits(parties: int, thresholds: int) -> float:
    """Bits of the parties' masked words alone."""
    return 32.0 * parties * words(thresholds)


def aggregation_bits(parties: int, thresholds: int) -> float:
    """Bits of secure aggregation among all pairs."""
    return roster.communication_bits(parties, words(thresholds))


def table_of_times(args: argparse.Namespace) -> None:
    """Print seconds of whole runs."""
    print("| protocol | parties | thresholds | MB sent | kB of a party | seconds of a party | of a server |")
    print("|---|---|---|---|---|---|---|")
    for parties in (n for n in SIZES if n <= args.most):
        bits, seconds = aggregation(parties, args.thresholds, args.levels)
        assert bits == roster.communication_bits(parties, words(args.thresholds))
        each = f"{bits / 8e3 / parties:.1f} | {seconds / parties:.3f}"
        print(f"| aggregation | {parties} | {args.thresholds} | {bits / 8e6:.2f} | {each} | (in one process) |")
    for parties in sorted({1000, args.parties}):
        found = sharing(parties, args.thresholds, args.levels)
        key = function_sharing.key_bits(args.levels, 1) * 2 / 8e3
        each = f"{key:.2f} | {found['party']:.4f}"
        print(
            f"| function sharing | {parties} | {args.thresholds} | {found['bits'] / 8e6:.2f} | {each} "
            f"| {found['server']:.1f} |"
        )
        print(
            f"  all keys in one call: {found['keys']:.2f} s; both servers side by side: {found['wall']:.1f} s of the "
            f"clock with the start of their processes"
        )


def table_of_bits() -> None:
    """Print bits over parties and thresholds."""
    print("\nMbit, aggregation / its masked words alone / function sharing:\n")
    print("| parties | " + " | ".join(f"{count} thresholds" for count in BITS_OF) + " |")
    print("|---" * (1 + len(BITS_OF)) + "|")
    for parties in PARTIES_OF:
        cells = (
            " / ".join(f"{bits(parties, count) / 1e6:,.1f}" for bits in (aggregation_bits, words_bits, sharing_bits))
            for count in BITS_OF
        )
        print(f"| {parties} | " + " | ".join(cells) + " |")


# The picture

Series = tuple[str, str, Sequence[tuple[float, float]]]
_WIDTH, _HEIGHT, _LEFT, _TOP = 340, 230, 62, 34
_STYLE = """
text { font: 12px sans-serif; fill: #222 } .axis { stroke: #888; fill: none } .grid { stroke: #ddd }
@media (prefers-color-scheme: dark) { text { fill: #e6e6e6 } .grid { stroke: #444 } }
"""


def panel(at: int, title: str, across: str, series: Sequence[Series]) -> str:
    """Draw bits over something, both on log scales."""
    xs = [log10(x) for _, _, points in series for x, _ in points]
    ys = [log10(y) for _, _, points in series for _, y in points]
    (left, right), (low, high) = (min(xs), max(xs)), (int(min(ys)), int(max(ys)) + 1)

    def place(x: float, y: float) -> tuple[float, float]:
        over = (log10(x) - left) / (right - left)
        return at + _LEFT + over * _WIDTH, _TOP + (high - log10(y)) / (high - low) * _HEIGHT

    parts = [f'<text x="{at + _LEFT}" y="18">{escape(title)}</text>']
    for power in range(low, high + 1):
        x, y = place(10**left, 10.0**power)
        parts.append(f'<line class="grid" x1="{x}" y1="{y}" x2="{x + _WIDTH}" y2="{y}"/>')
        parts.append(f'<text x="{x - 44}" y="{y + 4}">10^{power}</text>')
    for value in sorted({x for x, _ in series[0][2]}):
        x, y = place(value, 10.0**low)
        parts.append(f'<text x="{x - 10}" y="{y + 17}">{value:g}</text>')
    parts.append(f'<text x="{at + _LEFT + _WIDTH / 2 - 40}" y="{_TOP + _HEIGHT + 36}">{escape(across)}</text>')
    for number, (name, colour, points) in enumerate(series):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row = _TOP + _HEIGHT + 58 + 17 * number
        parts.append(f'<text x="{at + _LEFT}" y="{row}" style="fill: {colour}">{escape(name)}</text>')
    return "".join(parts)


def picture(path: Path) -> None:
    """Draw bits over thresholds and over servers."""
    colours = ("#b3541e", "#d9a07c", "#1f6fb2")
    few, many = 100, 1000
    over = [
        ("aggregation, 100 parties", colours[0], [(t, aggregation_bits(few, t)) for t in BITS_OF]),
        ("its masked words alone", colours[1], [(t, words_bits(few, t)) for t in BITS_OF]),
        ("function sharing, 100 rows", colours[2], [(t, sharing_bits(few, t)) for t in BITS_OF]),
    ]
    servers = range(2, 11)
    beside = [
        ("aggregation, 1000 parties", colours[0], [(m, aggregation_bits(many, 100)) for m in servers]),
        ("its masked words alone", colours[1], [(m, words_bits(many, 100)) for m in servers]),
        ("function sharing, more than 2 servers as if", colours[2], [(m, sharing_bits(many, 100, m)) for m in servers]),
    ]
    width = 2 * (_LEFT + _WIDTH + 24)
    drawn = panel(0, "bits sent by all", "thresholds", over)
    drawn += panel(width // 2, "bits sent by all, 100 thresholds", "servers", beside)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_TOP + _HEIGHT + 104}">'
    path.write_text(f"{head}<style>{_STYLE}</style>{drawn}</svg>\n", encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=10_000, help="of function sharing")
    parser.add_argument("--thresholds", type=int, default=1000)
    parser.add_argument("--levels", type=int, default=10, help="of the domain")
    parser.add_argument("--most", type=int, default=128, help="parties of a secure aggregation that is run")
    parser.add_argument("--picture", type=Path, help="FILE.svg to draw")
    args = parser.parse_args()
    if args.picture is not None:
        picture(args.picture)
    table_of_times(args)
    table_of_bits()


if __name__ == "__main__":
    main()
