"""Random specs over every key, and what is to happen to their sweeps; see ``sweep_fuzz.py``.

Everything here follows from one seed. Budgets are tiny: 1 to 6 trials, 1 to 4 epochs, 60 to 400 rows. What is made is
meant to be valid, but some specs are refused: those who make one rarely see every rule either.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from _fuzz_chance import Chance, Section, listed
from _fuzz_steps import draw_steps
from _fuzz_tables import draw_images, draw_table

SHARE_METRIC: Final = "fuzz-recall"  # a plug-in, and an objective
MAPS: Final = ("convnet", "patch-net", "lenet", "vgg", "resnet", "wide-resnet", "mixer", "scattering")
METHODS: Final = ("clipless", "lip-dp-sgd", "dp-sgd", "non-private")
SAMPLERS: Final = ("tpe", "gp", "nsga2", "nsga3", "quasi-random", "random", "grid")
ACTIVATIONS: Final = ("groupsort", "fullsort", "relu", "abs", "householder", "tanh", "sigmoid", "softplus")
CONSTRAINTS: Final = ("orthogonal", "spectral_ball", "standardised", "fixed_norm")
RADII: Final = ("0.05", "0.1", "1/8", "36/255")


@dataclass(frozen=True)
class Case:
    """A sweep that is to be run.

    Attributes:
        seed: that it follows from.
        spec: its content.
        classes: of its data.
        evaluation: what rows held back are.
        steps: what happens to it, one after the other; see ``_fuzz_runs.py``.
        tracked: whether MLflow is told of it.
        table: file of its data, empty where they are images.
    """

    seed: int
    spec: Section
    classes: int
    evaluation: str
    steps: tuple[Section, ...] = ()
    tracked: bool = False
    table: str = ""
    files: Section = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write table, ranges and spec into a folder; return the path of the spec."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        path = folder / "spec.yaml"
        path.write_text(yaml.safe_dump(self.spec, sort_keys=False), encoding="utf-8")
        return path


def make_case(seed: int, *, kills: bool = True) -> Case:
    """Return the sweep of a seed; without ``kills`` nothing ends its process."""
    chance = Chance(seed)
    is_image = chance.maybe(0.2)
    data, files, classes = draw_images(chance) if is_image else draw_table(chance)
    evaluation = data.get("evaluation", "public")
    spec: Section = {"name": f"fuzz-{seed}", "data": data}
    spec["training"] = _training(chance, classes, is_image=is_image)
    spec["model"] = _model(chance, spec["training"], is_image=is_image)
    spec["privacy"] = _privacy(chance, spec["training"], evaluation)
    spec["search"] = _search(chance, spec, classes, evaluation)
    if chance.maybe(0.4):
        spec["resources"] = _resources(chance)
    steps = tuple(draw_steps(chance, kills=kills))
    return Case(
        seed, spec, classes, evaluation, steps, tracked=chance.maybe(0.2), table=data.get("path", ""), files=files
    )


def _training(chance: Chance, classes: int, *, is_image: bool) -> Section:
    training: Section = {"method": "clipless"}
    if chance.maybe(0.45):
        training["method"] = chance.name(METHODS if chance.maybe(0.4) else METHODS[:3], 0.3)
    training["epochs"] = chance.count(1, 4, is_open=0.1)
    training["batch_size"] = chance.count(8, 32, 8, is_open=0.1)
    training["learning_rate"] = {"log": [1e-3, 0.3]} if chance.maybe(0.75) else chance.number(1e-3, 0.3, 0.5)
    for key, probability, draw in _training_options(chance, is_image=is_image):
        if chance.maybe(probability):
            training[key] = draw()
    if "gradient_clip" in training and chance.maybe(0.6):
        training["gradient_clip_schedule"] = chance.name(["adaptive", "constant", "linear", "cosine"])
        if "adaptive" in listed(training["gradient_clip_schedule"]) and chance.maybe(0.5):
            training["clip_quantile"] = chance.number(0.3, 0.95)
    if "freeze_after" in training and chance.maybe(0.4):
        training["freeze_layers"] = chance.count(1, 2)
    if training.get("optimizer") == "sgd" and chance.maybe(0.5):
        training["momentum"] = chance.pick([0.0, 0.5, 0.9])
    if training.get("flip") or training.get("shift"):
        training |= {"copies": chance.count(1, 2)} if chance.maybe(0.5) else {}
    if chance.maybe(0.55):
        training["loss"] = _losses(chance, classes)
    if chance.maybe(0.12):
        training["class_weights"] = [chance.pick([1, 1.5, 3]) for _ in range(classes)]
    return training


def _training_options(chance: Chance, *, is_image: bool) -> list[tuple[str, float, Callable[[], Any]]]:
    """Return keys of the section ``training``, how often each is given, and what draws its value."""
    is_dp_sgd = 0.5
    return [
        ("optimizer", 0.3, lambda: chance.name(["adam", "sgd"], 0.3)),
        ("schedule", 0.25, lambda: chance.name(["constant", "linear", "cosine"], 0.3)),
        ("averaging", 0.2, lambda: chance.number(0.5, 0.99, 0.2)),
        ("sensitivity_fraction", 0.4, lambda: chance.number(0.02, 1.0, 0.3)),
        ("follow_weights", 0.15, lambda: True),
        ("exact_norms", 0.15, lambda: chance.name([True, False], 0.3)),
        ("gradient_clip", 0.25, lambda: chance.number(0.05, 1.0, 0.3)),
        ("clip_norm", 0.15 * is_dp_sgd, lambda: chance.number(0.1, 2.0, 0.3)),
        ("ghost_clipping", 0.3 * is_dp_sgd, lambda: True),
        ("freeze_after", 0.15, lambda: chance.number(0.2, 0.9, 0.3, log=False)),
        ("micro_batch_size", 0.15, lambda: chance.pick([1, 3, 7, 16])),
        ("flip", 0.4 * is_image, lambda: True),
        ("shift", 0.4 * is_image, lambda: chance.count(0, 2)),
    ]


def _losses(chance: Chance, classes: int) -> Any:
    names = ["tau-cce", "multilabel-bce", "hinge", "weston-watkins", "crammer-singer", "kr", "hkr", "k-cosine", "mae"]
    names += ["tau-bce"] if classes == 2 else []
    chosen = [_loss(chance, name, classes) for name in chance.several(names, 2)]
    return chosen if len(chosen) > 1 else chosen[0]


def _loss(chance: Chance, name: str, classes: int) -> Section | str:
    options: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
        "temperature": (("tau-cce", "tau-bce", "multilabel-bce"), lambda: chance.number(0.05, 2.0, 0.3)),
        "margin": (("hinge", "weston-watkins", "crammer-singer", "hkr"), lambda: chance.number(0.1, 2.0, 0.3)),
        "alpha": (("hkr",), lambda: chance.number(0.01, 100.0, 0.3)),
        "floor": (("k-cosine",), lambda: chance.number(0.1, 2.0, 0.3)),
        "reduction": (
            ("multilabel-bce", "hinge", "weston-watkins", "kr", "hkr", "mae"),
            lambda: chance.name(["mean", "sum"], 0.3),
        ),
        "priors": (("kr", "hkr"), lambda: _priors(classes)),
    }
    given = {key: draw() for key, (takers, draw) in options.items() if name in takers and chance.maybe(0.4)}
    return {"name": name, **given} if given or chance.maybe(0.5) else name


def _priors(classes: int) -> list[float]:
    first = 0.5 if classes > 2 else 0.25
    return [first, *[(1 - first) / (classes - 1)] * (classes - 1)]


def _model(chance: Chance, training: Section, *, is_image: bool) -> Section:
    architecture = chance.pick([*MAPS, "mlp", "mlp"]) if is_image else "mlp"
    model: Section = {"architecture": architecture}
    if is_image and chance.maybe(0.1):
        model["architecture"] = [architecture, {"name": "mlp", "depth": 1}] if architecture != "mlp" else "mlp"
    model |= _shape(chance, architecture)
    if chance.maybe(0.3):
        model["activation"] = chance.name(ACTIVATIONS, 0.3)
    if chance.maybe(0.2):
        model["bias"] = chance.name([True, False], 0.3)
        if True in listed(model["bias"]) and chance.maybe(0.5):
            model["bias_norm"] = chance.number(0.1, 2.0)
    methods = set(listed(training["method"]))
    if chance.maybe(0.4):
        model["constraint"] = chance.name(CONSTRAINTS, 0.3)
        if chance.maybe(0.6) and {"spectral_ball", "fixed_norm"} & set(listed(model["constraint"])):
            model["weight_norm"] = chance.number(0.5, 2.0, 0.3)
    elif methods <= {"dp-sgd", "non-private"} and chance.maybe(0.6):
        model["constraint"] = "free"
    return model | _inputs(chance)


def _inputs(chance: Chance) -> Section:
    given: Section = {}
    if chance.maybe(0.12):
        given["standardise"] = chance.name([True, False], 0.2)
    if chance.maybe(0.12):
        given["input_quantile"] = chance.number(0.5, 0.95, log=False)
    if chance.maybe(0.25):
        given["input_clip"] = chance.number(0.3, 1.0)
    return given


def _shape(chance: Chance, architecture: str) -> Section:
    """Return sizes of a small network."""
    width = chance.count(2, 10 if architecture == "mlp" else 4, 2)
    if architecture == "mlp":
        return {"width": width, "depth": chance.count(1, 3)}
    if architecture == "scattering":
        given: Section = {"scales": 1, "orientations": chance.count(2, 3), "order": chance.count(1, 2)}
        given |= {"hidden": chance.pick([0, 4, 6])} if chance.maybe(0.5) else {}
        given |= {"order0_gain": chance.number(0.1, 1.0)} if chance.maybe(0.3) else {}
        given |= {"feature_groups": 1, "feature_floor": chance.number(0.05, 1.0)} if chance.maybe(0.3) else {}
        return given | ({"feature_clip": chance.number(0.5, 5.0)} if chance.maybe(0.3) else {})
    if architecture == "mixer":
        return {"patch": chance.pick([1, 2]), "depth": 1, **({"skip": 0.25} if chance.maybe(0.3) else {})}
    if architecture in ("resnet", "wide-resnet"):
        given = {"width": width, "depth": chance.count(1, 2), "learned_skip": chance.maybe(0.4)}
        given |= {"widening": chance.count(1, 2)} if architecture == "wide-resnet" else {}
        return given | ({"blocks": chance.count(1, 2)} if chance.maybe(0.3) else {})
    given = {"width": width, "hidden": chance.count(4, 8, 2)}
    given |= {"depth": chance.count(1, 2)} if architecture != "lenet" else {}
    given |= {"pooling": chance.name(["l2", "max", "avg"])} if architecture != "patch-net" or chance.maybe(0.2) else {}
    given |= {"convolutions": chance.count(1, 2)} if architecture == "vgg" else {}
    return given


def _privacy(chance: Chance, training: Section, evaluation: str) -> Section:
    privacy: Section = {"delta": chance.pick([1e-3, 1e-4, 1e-5])}
    if chance.maybe(0.05):
        privacy |= {"delta": 0.05, "accept_large_delta": True}
    way = chance.pick(
        ["epsilon", "epsilon", "epsilon", "noise", "noise", "length", "slots", "slots", "slots", "filter"]
    )
    if "non-private" in listed(training["method"]) and way in ("length", "slots"):
        way = "noise"
    if way == "length":
        del training["epochs"]
        privacy |= {"epsilon": chance.pick([2.0, 3.0]), "noise_multiplier": chance.pick([1.0, 1.2])}
    if way == "slots":
        privacy["sweep_epsilon"] = chance.pick([0.5, 3.0, 20.0])
        privacy |= _division(chance)
    if way == "filter":
        privacy |= {"sweep_epsilon": chance.pick([3.0, 10.0]), "accounting": "filter"}
    if way == "epsilon" or (way == "filter" and chance.maybe(0.5)):
        privacy["epsilon"] = chance.number(0.5, 10.0, 0.25)
    elif way in ("noise", "filter"):
        privacy["noise_multiplier"] = chance.number(0.6, 4.0, 0.25)
    if chance.maybe(0.3):
        privacy["noise"] = chance.name(["global", "per-layer", "min-variance"], 0.3)
    if chance.maybe(0.12) and way != "filter" and (way != "slots" or evaluation != "private"):
        privacy["relation"] = "replace-one"
    if evaluation == "private":
        privacy["score_noise"] = chance.pick([1.0, 5.0, 20.0])
        privacy |= {"curve_noise": chance.pick([2.0, 8.0])} if chance.maybe(0.35) else {}
    if chance.maybe(0.85):  # the others are audited
        privacy["audit"] = "none" if chance.maybe(0.97) else "thorough"
    return privacy


def _division(chance: Chance) -> Section:
    given: Section = {}
    if chance.maybe(0.4):
        trials = sorted((chance.whole(1, 3) for _ in range(chance.whole(1, 3))), reverse=True)
        shares = [chance.pick([0.05, 0.2]) for _ in trials[:-1]]
        given["stages"] = [{"trials": n, "share": share} for n, share in zip(trials, shares, strict=False)]
        given["stages"].append({"trials": trials[-1]})
    elif chance.maybe(0.3):
        given["finals"] = chance.whole(1, 2)
    if chance.maybe(0.3):
        given["spare_epochs"] = chance.whole(0, 2)
    return given


def _search(chance: Chance, spec: Section, classes: int, evaluation: str) -> Section:
    privacy = spec["privacy"]
    search: Section = {"objectives": _objectives(chance, classes, evaluation)}
    metrics = _metrics(chance, search["objectives"], classes, evaluation)
    search |= {"metrics": metrics} if metrics else {}
    if chance.maybe(0.2):
        search["constraints"] = chance.several(["accuracy >= 0.4", "epsilon <= 4"], 2)
    if chance.maybe(0.1):
        search["without_privacy"] = {"accuracy": 0.9}
    if chance.maybe(0.25) and _may_select(spec, evaluation):
        return search | _selection(chance, privacy)
    rate = spec["training"]["learning_rate"]
    if chance.maybe(0.6):
        search["sampler"] = chance.pick([name for name in SAMPLERS if name != "grid" or not isinstance(rate, dict)])
    if "stages" not in privacy:
        most = 6 if isinstance(rate, dict) else len(listed(rate)) if chance.maybe(0.9) else 4
        search["trials"] = chance.whole(1, max(most, privacy.get("finals", 1)))
    if chance.maybe(0.4):
        search |= {"scheduler": chance.pick(["asha", "hyperband"]), "eta": chance.whole(2, 3)}
        search |= {"brackets": 2} if chance.maybe(0.2) else {}
        search |= {"grace": chance.whole(1, 2)} if chance.maybe(0.4) else {}
    if chance.maybe(0.15):
        search["repeats"] = chance.whole(2, 3)
    if chance.maybe(0.2):
        search["free_points"] = evaluation != "private" and chance.maybe(0.6)
    in_slots = "sweep_epsilon" in privacy and "accounting" not in privacy
    if in_slots and evaluation == "public" and chance.maybe(0.4):
        search["rehearse"] = chance.maybe(0.5)
    if chance.maybe(0.3):
        search["seed"] = chance.whole(1, 99)
    if chance.maybe(0.06):
        limit, hours = chance.pick(["hours", "trial_hours"]), chance.pick([1e-5, 2e-4, 1.0])
        search[limit] = hours if limit == "hours" else 1.0  # a trial in a thread cannot be killed for being late
    if chance.maybe(0.15) and isinstance(rate, dict):
        search["first"] = [{"training": {"learning_rate": 0.05}}]
    return search


def _may_select(spec: Section, evaluation: str) -> bool:
    """Whether winners of this spec can be selected privately, as far as that is known here."""
    privacy, training = spec["privacy"], spec["training"]
    one_event = [training["method"], training.get("epochs"), training["batch_size"]]
    one_event += [privacy.get("epsilon"), privacy.get("noise_multiplier"), spec["model"].get("standardise")]
    is_open = any(isinstance(value, list | dict) for value in [*one_event, spec["model"].get("input_quantile")])
    refused = "non-private" in listed(training["method"]) or evaluation == "exploratory"
    return not (is_open or refused or {"accounting", "stages", "relation"} & set(privacy))


def _objectives(chance: Chance, classes: int, evaluation: str) -> list[str]:
    names = ["epsilon", "accuracy"]
    if chance.maybe(0.1):
        return [["accuracy"], ["accuracy", "epsilon"], ["epsilon", "certified@0.1"]][chance.whole(0, 2)]
    if chance.maybe(0.5):
        names.append(f"certified@{chance.pick(RADII)}")
    if evaluation != "private":
        names += [SHARE_METRIC] if chance.maybe(0.05) else []
        names += [chance.pick(["auroc", "certified-auroc@0.1"])] if classes == 2 and chance.maybe(0.3) else []
    return names


def _metrics(chance: Chance, objectives: Sequence[str], classes: int, evaluation: str) -> list[str]:
    names = [f"certified@{radius}" for radius in ("0.01", "0.3") if chance.maybe(0.1)]
    if evaluation != "private":
        names += [f"attacked@{chance.pick(RADII)}"] if chance.maybe(0.05) else []
        names += ["certified-auroc@0.02"] if classes == 2 and chance.maybe(0.1) else []
        names += [SHARE_METRIC] if SHARE_METRIC not in objectives and chance.maybe(0.05) else []
    if evaluation == "exploratory" and chance.maybe(0.3):
        names += chance.several(["membership-auroc", "membership-advantage"], 2)
    return names


def _selection(chance: Chance, privacy: Section) -> Section:
    search: Section = {"selection": "private", "selection_mean": chance.pick([1.1, 2.0, 3.0])}
    if "sweep_epsilon" in privacy:
        privacy.pop("finals", None)
        search |= {"selection_share": chance.pick([0.2, 0.5])} if chance.maybe(0.5) else {}
    return search


def _resources(chance: Chance) -> Section:
    given: Section = {}
    if chance.maybe(0.8):
        given["stack"] = chance.pick(["auto", 1, 2, 3, 4])
    if chance.maybe(0.2):
        given["concurrent"] = chance.whole(1, 2)
    return given
