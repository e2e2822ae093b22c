"""What the compose file promises, and what is refused in one."""

import re
from pathlib import Path

import pytest

from sweeper.errors import SweeperError
from tools.stack.compose import read_compose

FILE = Path(__file__).resolve().parents[3] / "docker-compose.yml"
SMALL = """\
name: small
services:
  store:
    image: store:1.2
    user: "1:1"
    networks: [inside]
    command: keep --port 7000 "two words"
    healthcheck: &well {test: [CMD, look], interval: 10s, timeout: 500ms, retries: 1, start_period: 2m, start_interval: 1s}
    restart: always
  front:
    image: front:1.2
    user: "1:1"
    networks: [inside]
    command: [show, "${PLACE:-here}", $$HOME]
    volumes: ["kept:/kept:ro"]
    tmpfs: ["/tmp:mode=1777"]
    secrets: [key]
    healthcheck: *well
    restart: "no"
    depends_on: {store: {condition: service_healthy}}
networks: {inside: {}}
volumes: {kept: {}}
secrets: {key: {file: "./key"}}
"""


@pytest.fixture(scope="module")
def compose():
    return read_compose(FILE, {})


@pytest.fixture
def small(tmp_path):
    """Write a small file, changed, and read it."""

    def read(old="", new="", **variables):
        assert old in SMALL
        path = tmp_path / "compose.yml"
        path.write_text(SMALL.replace(old, new, 1) if old else SMALL, encoding="utf-8")
        return read_compose(path, variables)

    return read


SERVICES = ("postgres", "mlflow", "ray-head", "ray-worker", "ray-worker-gpu", "sweeper")


def test_the_stack_has_these_services(compose):
    assert set(compose.services) == set(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_contained(compose, name):
    service = compose.services[name]
    assert service.read_only
    assert service.init
    assert service.cap_drop == ("ALL",)
    assert service.security_opt == ("no-new-privileges:true",)
    assert service.user.partition(":")[0] not in ("", "0", "root")
    assert service.restart == "unless-stopped"
    assert not {"/", "/var/run/docker.sock"} & {source for source, _ in service.mounts()}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_has_a_version(compose, name):
    _, _, version = compose.services[name].image.rpartition(":")
    assert version[0].isdigit()
    assert "." in version


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_is_in_a_command_or_an_environment(compose, name):
    service = compose.services[name]
    for text in (*service.arguments, *service.environment.values()):
        assert "password=" not in text.lower().replace('password="$(cat /run/secrets/postgres_password)"', "")
    for variable, value in service.environment.items():
        if any(word in variable for word in ("PASSWORD", "TOKEN")):
            assert value.startswith("/run/secrets/"), variable


def test_only_mlflow_and_the_service_are_published_and_only_to_this_machine(compose):
    published = {name: service.ports for name, service in compose.services.items() if service.ports}
    assert published == {"mlflow": ("127.0.0.1:5000:5000",), "sweeper": ("127.0.0.1:8600:8600",)}
    assert compose.networks["inside"] == {"internal": True}
    assert compose.networks["outside"] == {"driver_opts": {"com.docker.network.bridge.enable_ip_masquerade": "false"}}
    for name, service in compose.services.items():
        assert ("outside" in service.networks) is (name in published)


def test_the_tracking_server_answers_under_the_name_by_which_drivers_know_it(compose):
    service, server = " ".join(compose.services["sweeper"].arguments), compose.services["mlflow"].arguments[-1]
    assert "--tracking http://mlflow:5000" in service
    assert '--allowed-hosts "mlflow:5000,' in server
    assert "--port 5000" in server


def test_links_of_the_live_page_lead_to_where_the_tracking_server_is_published(compose):
    ((address, port),) = (entry.rsplit(":", 1) for entry in compose.services["mlflow"].ports)
    assert list(compose.services["mlflow"].published()) == [("5000", port)]
    other = read_compose(FILE, {"MLFLOW_PAGE": "https://mlflow.example.org"})
    for name in ("sweeper", "ray-head"):  # where the live page and the drivers are
        assert compose.services[name].environment["SWEEPER_TRACKING_PAGE"] == f"http://{address}"
        assert other.services[name].environment["SWEEPER_TRACKING_PAGE"] == "https://mlflow.example.org"


def test_links_to_the_live_page_lead_to_where_the_service_is_published(compose):
    ((address, _),) = (entry.rsplit(":", 1) for entry in compose.services["sweeper"].ports)
    assert f"--page http://{address}" in " ".join(compose.services["sweeper"].arguments)
    other = read_compose(FILE, {"SWEEPER_PAGE": "https://sweeps.example.org"}).services["sweeper"]
    assert "--page https://sweeps.example.org" in " ".join(other.arguments)


def test_the_first_steps_are_those_of_the_guide():
    header = FILE.read_text(encoding="utf-8").partition("\nname:")[0].replace("#   ", "").replace(" && ", "\n")
    guide = (FILE.parent / "docs" / "cluster.md").read_text(encoding="utf-8")
    steps = re.search(r"## Starting it\n\n```console\n(.*?)```", guide, flags=re.DOTALL).group(1).splitlines()
    assert len(steps) == 6
    for step in steps:
        assert f"\n{step.removeprefix('$ ')}\n" in header


def test_every_setting_is_explained_with_its_default():
    guide = (FILE.parent / "docs" / "cluster.md").read_text(encoding="utf-8")
    for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", FILE.read_text(encoding="utf-8")):
        (row,) = (line for line in guide.splitlines() if line.startswith("| ") and f"`{name}`" in line.split("|")[1])
        assert default in row


def test_a_folder_of_data_is_a_path():
    for given in ("./hospital", "/srv/hospital"):
        mounts = read_compose(FILE, {"SWEEPER_DATA": given}).services["ray-head"].mounts()
        assert (given, "/data") in mounts
    with pytest.raises(SweeperError, match="Expected a declared volume, got hospital"):
        read_compose(FILE, {"SWEEPER_DATA": "hospital"})


def test_ray_wants_a_token_on_every_node(compose):
    for name in ("ray-head", "ray-worker", "ray-worker-gpu", "sweeper"):
        service = compose.services[name]
        assert service.environment["RAY_AUTH_MODE"] == "token"
        assert service.environment["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray_token"
        assert "ray_token" in service.secrets


def test_workers_of_both_kinds_run_the_same_and_the_head_trains_nothing(compose):
    cpu, gpu = compose.services["ray-worker"], compose.services["ray-worker-gpu"]
    assert (cpu.profiles, gpu.profiles) == (("cpu",), ("gpu",))
    assert cpu.arguments == gpu.arguments
    assert gpu.deploy["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert "--num-cpus 0" in " ".join(compose.services["ray-head"].arguments)


def test_drivers_workers_and_the_service_see_the_same_folders(compose):
    mounts = [set(compose.services[name].volumes) for name in ("ray-head", "ray-worker", "ray-worker-gpu")]
    assert mounts[0] == mounts[1] == mounts[2]
    assert mounts[0] <= set(compose.services["sweeper"].volumes)
    assert "data:/data:ro" in mounts[0]


def test_the_image_declares_the_user_and_the_folders_that_the_services_write_to(compose):
    image = (FILE.parent / "Dockerfile").read_text(encoding="utf-8")
    ours = [service for service in compose.services.values() if service.image.startswith("sweeper:")]
    assert {service.user for service in ours} == {"10001:10001"}
    assert "USER 10001:10001" in image
    for service in ours:
        for source, target in service.mounts():
            assert source in compose.volumes
            assert f" {target}" in image


def test_each_image_of_ours_is_built_once_and_never_taken_from_a_registry(compose):
    ours = {name: service for name, service in compose.services.items() if service.image.startswith("sweeper:")}
    built = [service for service in ours.values() if service.build is not None]
    assert sorted(service.image for service in built) == sorted({service.image for service in ours.values()})
    for service in built:
        assert "TORCH_INDEX" in service.build.args
    assert {service.pull_policy for service in ours.values()} == {"never"}


def test_nothing_secret_is_committed_or_in_the_image():
    ignored = (FILE.parent / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"secrets/", ".env"} <= set(ignored)
    kept = [
        line for line in (FILE.parent / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"
    ]
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (FILE.parent / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(line[1:] for line in kept) == sorted(name for names in copied for name in names.split())


def test_a_worker_is_given_the_time_that_ray_takes_to_leave(compose):
    for name in ("ray-worker", "ray-worker-gpu"):
        assert compose.services[name].stop_grace_period > 30


def test_the_service_can_draw_pictures(compose):
    image = (FILE.parent / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    assert re.search(r"apt-get install .*\bchromium\b.*\bfonts-", image)
    service = compose.services["sweeper"]
    assert "/tmp" in service.scratch()
    assert service.environment["HOME"] == "/tmp", "a browser writes into its home"


def test_services_start_after_those_that_they_depend_on(compose):
    order = compose.in_order()
    for name, service in compose.services.items():
        assert all(order.index(needed) < order.index(name) for needed in service.depends_on)


def test_values_are_those_of_the_file(small):
    store, front = small(PLACE="there").services.values()
    assert store.arguments == ("keep", "--port", "7000", "two words")
    assert front.arguments == ("show", "there", "$HOME")
    assert small().services["front"].arguments[1] == "here"
    assert (store.healthcheck.timeout, store.healthcheck.start_period) == (0.5, 120.0)
    assert list(front.mounts()) == [("kept", "/kept")]
    assert list(front.scratch()) == ["/tmp"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("restart: always", "restart: sometimes", "services.store.restart"),
        ("    image: store:1.2", "    privileged: true\n    image: store:1.2", "services.store.privileged"),
        ("interval: 10s", "interval: soon", "Expected a duration such as 30s, got 'soon'"),
        ("kept:/kept:ro", "lost:/kept:ro", "Expected a declared volume, got lost \\(services.front"),
        ("secrets: [key]", "secrets: [lock]", "Expected a declared secret, got lock"),
        ("networks: [inside]", "networks: [beside]", "Expected a declared network, got beside"),
        ("depends_on: {store:", "depends_on: {shop:", "Expected a declared service, got shop"),
        ("${PLACE:-here}", "${PLACE:?where}", "Expected a value of PLACE"),
        ("name: small", "- small", "Cannot read"),
        (SMALL, "just text", "Expected a mapping"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(small, old, new, message):
    with pytest.raises(SweeperError, match=message):
        small(old, new)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SweeperError, match="name another with --file"):
        read_compose(tmp_path / "compose.yml", {})


def test_services_that_wait_for_each_other_are_refused(small):
    circle = small("    restart: always", "    restart: always\n    depends_on: {front: {condition: service_healthy}}")
    with pytest.raises(SweeperError, match="wait for each other, got front, store"):
        circle.in_order()
