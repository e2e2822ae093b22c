"""What `deploy/` starts on Kubernetes and on Slurm: objects by Kubernetes' schemas, the script with its commands replaced."""

import contextlib
import os
import re
import signal
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tools.stack.compose import read_compose

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.30", "1.36")
RAY_CLUSTER = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
COMMAND = """\
#!/bin/bash
if [ "$0" = "$TOOLS/scontrol" ]; then printf 'node-a\\nnode-b\\nnode-c\\n'; exit; fi
while [ "${1#--}" != "$1" ]; do [ "${1#--nodelist=}" = "$1" ] || node=${1#--nodelist=}; shift; done
echo "${node:-all} $*" >> "$TOOLS/log"
case "$*" in
    "ray start "*) touch "$TOOLS/up"; exec sleep 600 ;;
    "ray health-check "*) test -e "$TOOLS/up" ;;
esac
"""


def objects():
    """Every object of every manifest."""
    return [(file.name, one) for file in MANIFESTS for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def pods():
    """Every template of a pod, by what it is of."""
    found = {}
    for _, one in objects():
        if one["kind"] == "RayCluster":
            found["head"] = one["spec"]["headGroupSpec"]["template"]
            found |= {group["groupName"]: group["template"] for group in one["spec"]["workerGroupSpecs"]}
        elif one["kind"] == "Deployment":
            found[one["metadata"]["name"]] = one["spec"]["template"]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_objects_are_those_of_kubernetes(kubernetes):
    own = [one for _, one in objects() if one["kind"] != "RayCluster"]
    templates = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod["spec"]}
        for name, pod in pods().items()
    ]
    assert {one["kind"] for one in own} == {"PersistentVolumeClaim", "Deployment", "Service", "NetworkPolicy"}
    for one in own + templates:
        kubernetes_validate.validate(one, kubernetes, strict=True)


def test_the_schemas_refuse_a_word_that_kubernetes_does_not_know():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {**pods()["head"]["spec"], "gracePeriod": 3},
    }
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES[0], strict=True)


def test_the_ray_cluster_has_the_fields_of_its_definition():
    (cluster,) = (one for _, one in objects() if one["kind"] == "RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    assert set(cluster["spec"]) <= RAY_CLUSTER
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    head, workers = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    assert set(head) <= GROUP
    for group in workers:
        assert set(group) == GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (head, *workers):  # the operator hands them on as text
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert head["rayStartParams"]["num-cpus"] == "0"


def test_versions_are_those_of_this_code():
    compose = read_compose(ROOT / "docker-compose.yml", {})
    images = {service.image for service in compose.services.values()}
    for name, pod in pods().items():
        assert {container["image"] for container in pod["spec"]["containers"]} <= images, name
    (cluster,) = (one for _, one in objects() if one["kind"] == "RayCluster")
    assert cluster["spec"]["rayVersion"] == version("ray")


@pytest.mark.parametrize("name", ["head", "cpu", "gpu", "sweeper-service"])
def test_every_pod_is_contained_and_looked_after(name):
    spec = pods()[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert {"readinessProbe", "livenessProbe"} <= set(container)
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in spec["volumes"]}


def test_a_worker_that_leaves_is_drained_within_its_grace():
    for name in ("cpu", "gpu"):
        spec = pods()[name]["spec"]
        command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        assert "ray drain-node" in command
        deadline, pause = (int(re.search(found, command).group(1)) for found in (r"seconds (\d+)", r"sleep (\d+)"))
        assert pause < deadline < spec["terminationGracePeriodSeconds"]


def test_the_service_joins_the_cluster_with_its_token_and_serves_what_the_drivers_see():
    (cluster,) = (one for _, one in objects() if one["kind"] == "RayCluster")
    name = cluster["metadata"]["name"]
    (container,) = pods()["sweeper-service"]["spec"]["containers"]
    assert f"http://{name}-head-svc:8265" in container["args"]
    environment = {one["name"]: one for one in container["env"]}
    assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": name, "key": "auth_token"}
    head = {mount["mountPath"] for mount in pods()["head"]["spec"]["containers"][0]["volumeMounts"]}
    assert {"/sweeps", "/data"} <= head & {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_network_policy_lets_only_the_cluster_and_the_service_in():
    (policy,) = (one["spec"] for _, one in objects() if one["kind"] == "NetworkPolicy")
    labels = [one["podSelector"]["matchLabels"] for rule in policy["ingress"] for one in rule["from"]]
    assert labels == [{"ray.io/cluster": "sweeper"}, {"app": "sweeper-service"}]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}


@pytest.fixture
def slurm(tmp_path):
    """Start the script of a job of three nodes, whose commands only write down what they were told."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("srun", "scontrol"):
        (tools / name).write_text(COMMAND, encoding="utf-8")
        (tools / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "TOOLS": str(tools),
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "node-[a-c]",
        "SLURM_CPUS_PER_TASK": "16",
        "SWEEPER_LEAVING_SECONDS": "0",
    }
    script = ROOT / "deploy" / "slurm" / "cluster.sbatch"
    job = subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    address = tmp_path / "ray-cluster" / "address"
    try:
        while not (address.exists() and (tools / "log").read_text().count("ray start") == 3):
            assert job.poll() is None
            time.sleep(0.05)
        yield job, address, tools / "log"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def test_a_slurm_job_starts_a_head_and_a_worker_on_each_other_node(slurm):
    _, address, log = slurm
    started = [line for line in log.read_text().splitlines() if "ray start" in line]
    assert started[0].startswith("node-a ray start --block --num-cpus 16 --head --port 6379")
    assert sorted(started[1:]) == [f"node-{x} ray start --block --num-cpus 16 --address node-a:6379" for x in "bc"]
    assert address.read_text() == "http://node-a:8265\n"
    token = address.with_name("token")
    assert re.fullmatch(r"[0-9a-f]{64}", token.read_text())
    assert token.stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_a_slurm_job_that_is_told_to_leave_drains_its_nodes(slurm):
    job, address, log = slurm
    job.send_signal(signal.SIGTERM)
    job.wait()
    (drained,) = (line for line in log.read_text().splitlines() if "drain-node" in line)
    assert drained.startswith("all ray drain-node --address node-a:6379 --reason DRAIN_NODE_REASON_PREEMPTION")
    assert not address.exists()
