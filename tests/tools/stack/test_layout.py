"""Addresses, ports and folders of this machine in the place of those of the compose file."""

import ipaddress
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.stack.compose import read_compose
from tools.stack.layout import Ground, Layout, free_subnet, take_ports

FILE = Path(__file__).resolve().parents[3] / "docker-compose.yml"


def places(**more):
    ground = Ground(
        base=FILE.parent,
        state=Path("/state"),
        scratch=Path("/scratch"),
        subnet="127.9.9",
        **{"copies": {"ray-worker": 2, "ray-worker-gpu": 0}, **more},
    )
    return Layout(read_compose(FILE, {"SWEEPER_SECRETS": "/state/secrets"}), ground)


@pytest.fixture(scope="module")
def found():
    return places()


def test_every_copy_has_an_address_of_its_own(found):
    assert [place.name for place in found.all] == [
        "postgres",
        "ray-head",
        "mlflow",
        "ray-worker-1",
        "ray-worker-2",
        "sweeper",
    ]
    assert [place.address for place in found.all] == [f"127.9.9.{number}" for number in range(2, 8)]


def test_commands_name_hosts_ports_and_folders_of_this_machine(found):
    service = found.command(found.named("sweeper"))
    at = {place.name: place for place in found.all}
    assert service[service.index("--host") + 1] == at["sweeper"].address
    assert service[service.index("--out") + 1] == "/state/volumes/sweeps"
    mlflow, head = at["mlflow"], at["ray-head"]
    assert service[service.index("--tracking") + 1] == f"http://{mlflow.address}:{mlflow.ports['5000']}"
    assert service[service.index("--cluster") + 1] == f"http://{head.address}:{head.ports['8265']}"


def test_the_address_for_browsers_is_that_under_which_the_machine_has_it(found):
    place = found.named("sweeper")
    service = found.command(place)
    for told in (place, found.named("ray-head")):  # drivers run there
        page = found.environment(told)["SWEEPER_TRACKING_PAGE"]
        assert page == service[service.index("--tracking") + 1]
    assert service[service.index("--page") + 1] == f"http://{place.address}:{place.ports['8600']}"


def test_a_shell_command_is_translated_as_a_whole(found):
    mlflow, postgres = found.named("mlflow"), found.named("postgres")
    shell, flag, line = found.command(mlflow)
    assert (shell, flag) == ("sh", "-c")
    assert '"$(cat /state/secrets/postgres_password)" exec mlflow' in line
    assert f"postgresql+psycopg2://mlflow@{postgres.address}:{postgres.ports['5432']}/mlflow" in line
    assert f"--host {mlflow.address} --port {mlflow.ports['5000']} " in line
    assert "--artifacts-destination /state/volumes/artifacts " in line
    assert f'--allowed-hosts "{mlflow.address}:{mlflow.ports["5000"]},localhost:*,127.0.0.1:*"' in line


def test_every_ray_node_has_its_own_address_and_scratch_folder(found):
    for name in ("ray-head", "ray-worker-1", "ray-worker-2"):
        place = found.named(name)
        command = found.command(place)
        assert command[-4:] == ("--node-ip-address", place.address, "--node-name", name)
        assert command[command.index("--temp-dir") + 1] == f"{place.scratch[0]}/ray"
        assert str(place.scratch[0]).startswith("/scratch/")
    assert len({place.scratch for place in found.all}) == len(found.all)


def test_health_checks_look_at_the_service_itself(found):
    for place in found.all:
        text = " ".join(found.health(place))
        assert place.address in text or str(place.scratch[0]) in text
        assert "127.0.0.1" not in text


def test_environments_name_secrets_in_files_of_this_machine(found):
    assert found.environment(found.named("ray-head"))["RAY_AUTH_TOKEN_PATH"] == "/state/secrets/ray_token"
    assert found.environment(found.named("postgres"))["PGDATA"] == "/state/volumes/postgres"


def test_nothing_of_the_containers_is_left_in_what_is_run(found):
    for place in found.all:
        for text in (*found.command(place), *found.health(place), *found.environment(place).values()):
            for name in ("/run/secrets", "0.0.0.0", "postgres:", "mlflow:", "ray-head:", "sweeper:"):
                assert name not in text


def test_a_port_that_is_replaced_is_replaced_everywhere():
    found = places(ports={"8265": "39000"})
    head, service = found.named("ray-head"), found.named("sweeper")
    assert f"http://{head.address}:39000" in found.command(service)
    for place in found.all:
        assert "8265" not in " ".join((*found.command(place), *found.health(place)))


def test_stacks_do_not_take_ports_of_each_other_or_of_what_listens():
    with socket.create_server(("", 0)) as taken, ExitStack() as first, ExitStack() as second:
        port = str(taken.getsockname()[1])
        compose = read_compose(FILE, {"MLFLOW_ARTIFACTS": f"--port {port}"})
        ports = [take_ports(compose, held) for held in (first, second)]
        assert ports[0].keys() == ports[1].keys() >= {port, "5000", "5432", "6379", "8265", "8600"}
        assert ports[0][port] != port
        assert not set(ports[0].values()) & set(ports[1].values()), "nothing listens on them yet"


def test_a_service_may_be_given_another_address():
    found = places(addresses={"mlflow": "10.1.2.3"})
    assert "http://10.1.2.3:" in " ".join(found.command(found.named("sweeper")))


def test_subnets_are_of_this_machine():
    assert all(ipaddress.ip_address(f"{free_subnet()}.2").is_loopback for _ in range(20))
