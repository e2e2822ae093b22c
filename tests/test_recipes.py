"""The recipes of the guide: their commands exist and are accepted, and their numbers hold."""

import re
import shlex
from math import sqrt
from pathlib import Path

import pytest

from clipless.datasets import load
from sweeper.cli.main import main
from sweeper.planning import estimate
from sweeper.search.space import sample
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import parse_mapping
from sweeper.trials.build import build_loss, build_model, build_plan

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.removeprefix("$ sweeper "), comments=True)
    for block in re.findall(r"```console\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.splitlines()
]
FOLDERS = {"FOLDER-OF-adbench": "adbench", "FOLDER-OF-tabular": "tabular", "adult.csv.gz": "tabular/adult.csv.gz"}
READ_FROM_FOLDER = {"mnist"}


def run(command):
    with pytest.raises(SystemExit) as ended:
        main(command)
    return ended.value.code


def test_the_recipes_have_commands():
    assert len(COMMANDS) >= 10
    assert all(verb in ("check", "run", "data") for verb, *_ in COMMANDS)


@pytest.mark.sampled(5)
@pytest.mark.shared
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.long] * any("mnist" in word for word in command))  # seconds to decode
        for command in COMMANDS
    ],
    ids=" ".join,
)
def test_every_command_of_a_recipe_is_accepted(command, shared_data, capsys, monkeypatch):
    """As written, from a checkout; instead of training, the spec is checked against its data, and no time is measured."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(estimate, "_step_seconds", lambda *_: 1.0)
    monkeypatch.setattr(estimate, "_scoring_seconds", lambda *_: (1.0, 1.0))
    verb, *rest = [str(shared_data / FOLDERS[word]) if word in FOLDERS else word for word in command]
    if verb == "run":
        assert run([*command, "--help"]) == 0
        assert set(rest[1::2]) <= {"--trials", "--data-dir"}
        given = dict(zip(rest[1::2], rest[2::2], strict=True))
        assert int(given.pop("--trials", "1")) <= Spec.from_yaml(rest[0]).trials
        rest = [rest[0], *(word for pair in given.items() for word in pair)]
        verb = "check"
    if verb == "check" and Spec.from_yaml(rest[0]).data.name in READ_FROM_FOLDER:
        rest += ["--data-dir", str(shared_data)]
    assert run([verb, *rest]) in (0, None), capsys.readouterr().err


def blocks():
    return [parse_mapping(block, "docs/recipes.md") for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def test_the_specs_in_the_recipes_are_the_ready_ones():
    shown = {content["name"]: content for content in blocks()}
    assert set(shown) == {"recipes-tan-tune", "recipes-tan-scale"}
    for name, content in shown.items():
        ready = Spec.from_yaml(ROOT / "sweeps" / "recipes" / f"{name.removeprefix('recipes-')}.yaml")
        assert Spec.from_mapping(content).to_plain() == ready.to_plain()


def plan_of(content):
    """The plan of one of the recipes' trainings."""
    spec = Spec.from_mapping(content)
    values = {"learning_rate": 0.01, "sensitivity_fraction": 0.1, "loss.tau-cce.temperature": 0.3}
    proposal = {name: values[name.removeprefix("training.")] for name in sample(spec.space, 1)[0]}
    data, config = load("digits"), spec.space.resolve(proposal)
    loss = build_loss(config)
    return build_plan(config, build_model(config, data, loss, seed=0), loss, len(data.train))


def test_small_and_large_trainings_have_the_same_total_noise_and_the_stated_epsilons():
    small, large = (plan_of(content) for content in blocks())
    events = small.event(), large.event()
    assert events[0].steps == events[1].steps == 120
    assert 8 * small.batch_size == large.batch_size
    total = [event.noise_multiplier / (event.sampling_rate * sqrt(event.steps)) for event in events]
    assert total[0] == pytest.approx(total[1], rel=1e-12)
    for name, std in small.noise_stds.items():
        assert std / small.batch_size == pytest.approx(large.noise_stds[name] / large.batch_size, rel=1e-12)


def test_the_stated_prices_are_those_of_the_accountants():
    from clipless.privacy.accounting.claim import claim

    stated = re.search(r"a trial of the small spec costs ([0-9.]+), the large one ([0-9.]+)\.", TEXT).groups()
    for content, price in zip(blocks(), stated, strict=True):
        plan = plan_of(content)
        assert f"{claim(plan.event(), plan.delta).epsilon:.2f}" == price
