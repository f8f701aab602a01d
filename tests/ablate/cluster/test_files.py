"""The ready files are what Ray, KubeRay, MLflow and a shell take, as far as it can be told here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ablate.engine.resources import Request, check_nodes
from tests.ablate.cluster.files import BIN, FOLDER, ROOT, help_of, loaded, ray_schema, run_lines
from trainables.words.errors import ConfigError

CLOUDS = ("aws.yaml", "gcp.yaml")


def constraint(package: str) -> str:
    match = re.search(rf"^{package}==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOUDS)
def test_clouds_have_ray_s_schema_a_token_and_nothing_open(name: str) -> None:
    cloud = loaded(name)
    jsonschema.validate(cloud, ray_schema())
    head = cloud["available_node_types"][cloud["head_node_type"]]
    assert head["resources"] == {"CPU": 0, "GPU": 0}
    assert "~/.ray/auth_token" in cloud["file_mounts"].values()
    starts = [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in cloud[key]
        if "ray start" in line
    ]
    assert len(starts) == 2 and all("RAY_AUTH_MODE=token" in line for line in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0] and "0.0.0.0" not in str(cloud)
    options = re.findall(r" (--[a-z-]+)", " ".join(starts))
    assert not [option for option in options if option not in help_of("ray", "start")]


@pytest.mark.parametrize("name", [*CLOUDS, "raycluster.yaml"])
def test_a_trial_fits_on_a_node_that_is_there_from_the_start(name: str) -> None:
    """The head alone is refused: Ray does not tell what its autoscaler could bring."""
    if name in CLOUDS:
        gpu = loaded(name)["available_node_types"]["gpu"]
        there, most = gpu["min_workers"], gpu["max_workers"]
    else:
        (gpu,) = loaded(name)["spec"]["workerGroupSpecs"]
        there, most = gpu["minReplicas"], gpu["maxReplicas"]
        assert gpu["replicas"] == there
    head, asked = {"node:1": 1.0, "memory": 1.0}, Request(1, 1, "cuda")
    with pytest.raises(ConfigError, match="wait for a node that is starting"):
        check_nodes(asked, [head])
    assert check_nodes(asked, [head, *there * [{"CPU": 8.0, "GPU": 1.0}]]) == there < most


def check_cluster(spec: dict[str, Any]) -> None:
    assert spec["rayVersion"] == constraint("ray")
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["autoscalerOptions"]["upscalingMode"] in ("Default", "Aggressive", "Conservative")
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    (workers,) = spec["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["maxReplicas"]
    for group in (spec["headGroupSpec"], workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == container["resources"]["requests"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in group["template"]["spec"]["volumes"]}
    gpus = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert gpus == "1"


def test_a_cluster_and_a_job_on_kubernetes() -> None:
    from ablate.cli.main import build_parser

    cluster, job = loaded("raycluster.yaml"), loaded("rayjob.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode")
    assert job["spec"]["rayClusterSpec"] == cluster["spec"]
    check_cluster(cluster["spec"])
    program, *arguments = job["spec"]["entrypoint"].split()
    assert program == "ablate" and build_parser().parse_args(arguments).address == "auto"


@pytest.mark.slow
def test_mlflow_s_server() -> None:
    compose = loaded("mlflow.yaml")
    services = compose["services"].values()
    command = compose["services"]["mlflow"]["command"]
    assert command[:2] == ["mlflow", "server"]
    options = [word for word in command if word.startswith("--")]
    assert not [option for option in options if option not in help_of("mlflow", "server")]
    assert "${" not in str(command), "a secret on a command line"
    ports = [port for service in services for port in service.get("ports", ())]
    assert len(ports) == 2 and all(port.startswith("127.0.0.1:") for port in ports)
    text = (FOLDER / "mlflow.yaml").read_text(encoding="utf-8")
    # Every secret comes from outside, and compose stops where one is missing.
    assert re.findall(r"\$\{[^}]*[^?]\}", text) == []
    assert len(set(re.findall(r"\$\{(\w+):\?\}", text))) == 4
    images = [service["image"] for service in services]
    assert all(":" in image and not image.endswith(":latest") for image in images)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    command = [str(BIN / "shellcheck"), str(path)]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_image_has_the_ray_that_is_tested() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert f"FROM rayproject/ray:{constraint('ray')}-py311\n" in text
    assert len(run_lines()) == 2
