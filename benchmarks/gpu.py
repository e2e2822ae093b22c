"""What has to be seen on a GPU, in ten minutes: exactness, waiting, steps, noise, stacks, evaluation, whole sweeps.

    python benchmarks/gpu.py [--device cuda] [--only steps noise] [--data-dir FOLDER] [--write benchmarks/RESULTS.md]
    python benchmarks/gpu.py --device cpu --small          the same on tiny sizes: what the tests run

Each row is printed as soon as it is measured; a part that fails prints its error and the others go on. Times are
medians over rounds; contenders of a round run one after the other.

* exact: products of digits, neighbours built to round apart (`neighbours.py`), rows that see other rows
* alike: keystreams, projections and norm bounds, beside what the host computes
* waiting: a step under torch's refusal of synchronisation (CUDA)
* noise: normals from the device's keystream, and from the host's copied to it
* steps: `_step.py`'s contenders over logical batches (figure 5 of Bethune et al. 2024), in float32 and tf32
* stacks: trials an hour of one process, of processes that share the device, and of stacks
* evaluation: accuracy and certified accuracy of a split
* sweep: `sweeper run` of ready specs, cut to a few trials, for which ``--data-dir`` has the data
"""

import argparse
import contextlib
import importlib.util
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import _step
import neighbours
import torch
import yaml

import clipless
from clipless import norms
from clipless.datasets import Split
from clipless.guards import exact_sums
from clipless.plans.trainable import check_rows_apart
from clipless.privacy.keystream import Keystream, Purpose, chacha20
from clipless.privacy.randomness import SecureSource
from clipless.projections import FixedNorm, Orthogonal, SpectralBall
from clipless.training.trainer import PrivateTrainer

Table = Iterator[Sequence[object]]  # its head first

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = tuple(clipless.zoo.ARCHITECTURES)
START = "<!-- gpu -->"
CONTENDERS = {
    "private": (512, 2048, 8192),
    "private, recorded": (512, 2048, 8192),
    "lipschitz + projection": (512, 2048, 8192),
    "relu": (512, 2048, 8192),
    "opacus": (64, 256, 1024),
    "opacus ghost": (256, 1024, 4096),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        batches: logical ones.
        rounds: of each measurement.
        pairs: of neighbours, and ``seconds`` at most.
        parameters: of the noise.
        rows: of a split.
        members: of a stack, and processes that share the device.
        epochs: of a stacked trial.
        most_physical: rows of one pass.
        trials: of a whole sweep.
    """

    batches: Sequence[int] = (512, 2048, 5000, 10_000, 25_000)
    rounds: int = 5
    pairs: int = 2000
    seconds: float = 60.0
    parameters: Sequence[int] = (10_000, 1_000_000, 11_000_000)
    rows: int = 60_000
    members: Sequence[int] = (1, 4, 16)
    epochs: int = 3
    most_physical: int = 8192
    trials: int = 16


SMALL = Sizes(
    batches=(6,), rounds=1, pairs=1, seconds=0.0, parameters=(100,), rows=64, members=(1, 2), epochs=1, most_physical=4,
    trials=2,
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where, and how much of it."""

    device: str
    sizes: Sizes
    data_dir: Path | None = None

    def seconds(self, work: Callable[[], object]) -> float:
        """Median time of a piece of work after a first one, everything that it started included."""
        work()
        return statistics.median(_step.seconds(work, self.device, 1, warm=False) for _ in range(self.sizes.rounds))


def exact(place: Place) -> Table:
    """Sums on this device: which product of digits is exact, how far neighbours are apart, which kernels mix rows."""
    yield "check", "found"
    device = torch.device(place.device)
    for multiply in (exact_sums._int8, exact_sums._float32_blocks, exact_sums._float64):
        is_exact = exact_sums._is_exact(multiply, device)
        yield f"products of digits, {multiply.__name__.strip('_')}", is_exact or f"not exact: {said(multiply, device)}"
    yield "the one that is used", exact_sums._multiplier(device).__name__.strip("_")
    found = neighbours.campaign(place.sizes.pairs, place.sizes.seconds, 0, place.device)
    yield (
        f"largest move of {sum(w.pairs for w in found.values())} pairs, over Delta",
        max(w.exact for w in found.values()),
    )
    for tf32 in (False, True):
        with precision(tf32=tf32):
            yield f"rows apart in a convnet, tf32 {'on' if tf32 else 'off'}", rows_apart(place)


def said(multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], device: torch.device) -> str:
    """What the library says to one product of digits."""
    ones = torch.ones(32, 1040, dtype=torch.int8, device=device)
    try:
        multiply(ones, ones.mT)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "no error"


def rows_apart(place: Place) -> str:
    """What `fit` would say of the kernels that the passes of a convolutional network use."""
    network = _step.lipschitz_network(128).to(place.device)
    try:
        check_rows_apart(network, [min(rows, place.sizes.most_physical) for rows in (3, 512, 8192)])
    except clipless.errors.UnsupportedError as error:
        return str(error)
    return "yes"


@contextlib.contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """Allow products of lower precision inside the block, or not."""
    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = tf32
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.allow_tf32 = value


def alike(place: Place) -> Table:
    """What the device computes where the host computes it too, in float64, from 200 matrices of every condition."""
    yield "what", "found"
    generator = torch.Generator().manual_seed(0)
    key_8 = torch.randint(-(2**31), 2**31, (8,), generator=generator).int()
    counter_B = torch.arange(2**16 + 3, dtype=torch.int32)
    blocks = (chacha20(key_8.to(where), (1, 2, 3), counter_B.to(where)).cpu() for where in ("cpu", place.device))
    yield "blocks of ChaCha20 that differ from the host's", int(torch.ne(*blocks).any(dim=1).sum())
    matrices = [matrix(generator) for _ in range(200)]
    shares = [
        float(norms.spectral_norm_by_powers(weight.to(place.device))) / float(torch.linalg.svdvals(weight)[0])
        for weight in matrices
    ]
    yield "bound of a norm over the norm, least and largest, less 1", f"{min(shares) - 1:.0e}, {max(shares) - 1:.0e}"
    for constraint in (SpectralBall(), FixedNorm(), Orthogonal()):
        largest = max(torch.linalg.svdvals(constraint.project(one.to(place.device)).cpu())[0] for one in matrices)
        yield f"largest norm after {type(constraint).__name__}, less 1", f"{float(largest) - 1:.0e}"


def matrix(generator: torch.Generator) -> torch.Tensor:
    """Return a matrix whose singular values are spread over up to six powers of ten around 1."""
    rows, columns = torch.randint(1, 200, (2,), generator=generator).tolist()
    spread = 6 * torch.rand((), generator=generator, dtype=torch.float64)
    left, right = (torch.randn(size, size, generator=generator, dtype=torch.float64) for size in (rows, columns))
    exponents = spread * (torch.rand(min(rows, columns), generator=generator, dtype=torch.float64) - 0.5)
    values = torch.zeros(rows, columns, dtype=torch.float64)
    values.diagonal().copy_(10.0**exponents)
    return torch.linalg.qr(left)[0] @ values @ torch.linalg.qr(right)[0]


def waiting(place: Place) -> Table:
    """Steps that the host takes without waiting for the device."""
    yield "step", "waits"
    for name in ARCHITECTURES:
        for follow in (False, True):
            yield f"{name}{', sensitivities follow the weights' if follow else ''}", waits(place, name, follow)


def waits(place: Place, name: str, follow: bool) -> str:
    """Whether torch refuses a step that must not synchronise; on a CPU nothing does."""
    rows = 3 * min(place.sizes.batches)
    model = clipless.zoo.build(name, (1, 28, 28), 10, input_norm=10.0).to(place.device)
    loss, split = clipless.TauCCE(1.0), _step.data(rows, place.device)
    plan = clipless.make_plan(
        *(model, loss), population=len(split), batch_size=rows, delta=1e-6, noise_multiplier=1.0, epochs=1,
        follow_weights=follow,
    )  # fmt: skip
    trainer = PrivateTrainer(model, loss, split, plan, clipless.Adam(1e-3), place.sizes.most_physical, SecureSource())
    chosen = torch.arange(rows, device=place.device)
    trainer.step(chosen)
    if place.device == "cpu":
        return "not asked"
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.step(chosen)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


def noise(place: Place) -> Table:
    """Standard normals for one step."""
    yield "parameters", "keystream of the device, ms", "host's, copied, ms"
    for count in place.sizes.parameters:
        words, host = Keystream(place.device, Purpose.NOISE), SecureSource()
        source = _Elsewhere(words)
        there = place.seconds(lambda count=count, source=source: source.normal(count, place.device))
        here = place.seconds(lambda count=count, host=host: host.normal(count).to(place.device))
        yield f"{count:,}", f"{1e3 * there:.2f}", f"{1e3 * here:.2f}"


class _Elsewhere(SecureSource):  # type: ignore[misc]
    """Takes words from one keystream, on whatever device."""

    def __init__(self, words: Keystream) -> None:
        super().__init__()
        self._words = words

    def words(self, count: int, device: torch.device | str, purpose: Purpose) -> torch.Tensor:
        del device, purpose
        return self._words.words(count)


def steps(place: Place) -> Table:
    """Time of a step over logical batches, each contender at its best physical batch."""
    yield "contender", "tf32", "physical", *(f"ms at {batch}" for batch in place.sizes.batches)
    for tf32 in (False, True):
        with precision(tf32=tf32):
            for name, several in CONTENDERS.items():
                rows, times = contender(place, name, sorted({min(r, place.sizes.most_physical) for r in several}))
                yield name, "on" if tf32 else "off", rows, *(f"{1e3 * taken:.1f}" for taken in times)


def contender(place: Place, name: str, several: Sequence[int]) -> tuple[int, list[float]]:
    """The best physical batch of a contender, and its times."""

    def taken(batch: int, physical: int) -> float:
        case = _step.Case(contender=name, batch=batch, physical=min(physical, batch), device=place.device)
        return place.seconds(_step.build(case, _step.data(batch, place.device)))

    middle = place.sizes.batches[len(place.sizes.batches) // 2]
    best = min(several, key=lambda physical: attempt(lambda: taken(middle, physical)))
    return best, [attempt(lambda batch=batch: taken(batch, best)) for batch in place.sizes.batches]


def attempt(measure: Callable[[], float]) -> float:
    """A measurement; infinite if there is no memory for it."""
    try:
        return measure()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return float("inf")


def stacks(place: Place) -> Table:
    """Trials an hour: in one process, in several that share the device, and as stacks."""
    yield "network", "way", "at a time", "trials an hour"
    for name in ("scattering", "lenet"):
        for count in place.sizes.members:
            yield name, "processes", count, f"{3600 * count / by_processes(place, name, count):.0f}"
            if importlib.util.find_spec("clipless.stacks"):
                yield name, "stack", count, f"{3600 * count / by_stack(place, name, count):.0f}"


def trial_parts(place: Place, name: str) -> tuple[clipless.Network, clipless.TauCCE, Split, clipless.Plan]:
    """One training of the stacks' table."""
    model = clipless.zoo.build(name, (1, 28, 28), 10, input_norm=10.0).to(place.device)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(place.sizes.rows, 1, 28, 28, generator=generator)
    split = Split(x.to(place.device), torch.randint(0, 10, (len(x),), generator=generator).to(place.device))
    loss = clipless.TauCCE(0.5)
    plan = clipless.make_plan(
        *(model, loss), population=len(split), batch_size=len(split) / 16, delta=1e-6, noise_multiplier=1.0,
        epochs=place.sizes.epochs,
    )  # fmt: skip
    return model, loss, split, plan


def by_processes(place: Place, name: str, count: int) -> float:
    """Time of as many processes that train at once, from the moment that all are ready."""
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(count + 1), context.Barrier(count + 1)
    workers = [context.Process(target=_train_alone, args=(place, name, ready, done)) for _ in range(count)]
    for worker in workers:
        worker.start()
    ready.wait(120)
    began = time.perf_counter()
    done.wait(600)
    seconds = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return seconds


def _train_alone(place: Place, name: str, ready: object, done: object) -> None:
    torch.set_num_threads(1)
    model, loss, split, plan = trial_parts(place, name)
    ready.wait(120)  # type: ignore[attr-defined]
    for _ in clipless.fit(model, loss, split, plan):
        pass
    done.wait(600)  # type: ignore[attr-defined]


def by_stack(place: Place, name: str, count: int) -> float:
    """Time of a stack."""
    from clipless.stacks import Member, fit_stack  # type: ignore[import-not-found,unused-ignore]

    parts = [trial_parts(place, name) for _ in range(count)]
    split = parts[0][2]
    began = time.perf_counter()
    for _ in fit_stack([Member(model=model, loss=loss, plan=plan) for model, loss, _, plan in parts], split):
        pass
    return time.perf_counter() - began


def evaluation(place: Place) -> Table:
    """Scores of a split."""
    yield "network", "rows", "accuracy, ms", "with certified radii, ms"
    for name in ("scattering", "lenet"):
        model, _, split, _ = trial_parts(place, name)
        plain = place.seconds(lambda model=model, split=split: clipless.evaluate(model, split))
        both = place.seconds(lambda model=model, split=split: clipless.evaluate(model, split, radii=["0.5"]))
        yield name, f"{len(split):,}", f"{1e3 * plain:.1f}", f"{1e3 * both:.1f}"


def sweep(place: Place) -> Table:
    """Whole sweeps, from the command to the front."""
    yield "spec", "trials", "seconds"
    gpus = 0 if place.device == "cpu" else 0.25
    specs = ("digits",) if place.sizes is SMALL else ("mnist-scattering", "cifar10-scattering")
    for name in specs:
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder) / f"{name}.yaml"
            content = yaml.safe_load((ROOT / "sweeps" / spec.name).read_text(encoding="utf-8"))
            spec.write_text(yaml.safe_dump({**content, "resources": {"gpus": gpus}}), encoding="utf-8")
            command = [sys.executable, "-c", "from sweeper.cli.main import main; main()", "run", spec, "--out", folder]
            command += ["--trials", str(place.sizes.trials)]
            command += ["--data-dir", place.data_dir] if place.data_dir else []
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr[-1000:])
            yield name, place.sizes.trials, f"{time.perf_counter() - began:.0f}"


PARTS: dict[str, Callable[[Place], Table]] = {
    part.__name__: part for part in (exact, alike, waiting, noise, steps, stacks, evaluation, sweep)
}


def report(part: Callable[[Place], Table], place: Place) -> Iterator[str]:
    """Yield lines of Markdown: title, table, and the error that ended it, if one did."""
    yield from (f"### {part.__name__}", "", (part.__doc__ or "").strip(), "")
    began = time.perf_counter()
    try:
        for number, row in enumerate(part(place)):
            yield f"| {' | '.join(map(str, row))} |"
            if number == 0:
                yield "|" + "---|" * len(row)
    except Exception:  # one part must not cost the others their minutes
        yield from ("", "Failed:", "", *(f"    {line}" for line in traceback.format_exc(limit=-3).splitlines()))
    yield from ("", f"{time.perf_counter() - began:.0f} s", "")


def write(file: Path, text: str) -> None:
    """Replace what an earlier run wrote into a file of results, or append."""
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    head, _, rest = before.partition(START)
    _, _, tail = rest.partition(START)
    file.write_text(f"{head.rstrip()}\n\n{START}\n{text}\n{START}\n{tail.lstrip()}".lstrip(), encoding="utf-8")


def main() -> None:
    """Print, and perhaps write, the tables."""
    _step.start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    place = Place(options.device, SMALL if options.small else Sizes(), options.data_dir)
    name = "a CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    lines = [f"## On {name}", "", f"torch {torch.__version__}, `python benchmarks/gpu.py`, one run.", ""]
    print(*lines, sep="\n", flush=True)
    for line in chain.from_iterable(report(PARTS[part], place) for part in options.only):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        write(options.write, "\n".join(lines))


if __name__ == "__main__":
    main()
