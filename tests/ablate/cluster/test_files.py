"""The ready files are what Ray, KubeRay, MLflow and a shell take, as far as it can be told here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ablate.engine.ray.resources import Request, check_nodes
from tests.ablate.cluster.files import BIN, FOLDER, ROOT, help_of, loaded, ray_schema, run_lines
from trainables.errors import ConfigError

CLOUDS = ("aws.yaml", "gcp.yaml")


def constraint(package: str) -> str:
    found = re.search(rf"^{package}==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


# ------------------------------------------------------------------------------------------ Ray


@pytest.mark.parametrize("name", CLOUDS)
def test_ray_takes_it(name: str) -> None:
    jsonschema.validate(loaded(name), ray_schema())


@pytest.mark.parametrize("name", CLOUDS)
def test_clouds_have_a_token_and_nothing_open(name: str) -> None:
    given = loaded(name)
    assert given["available_node_types"][given["head_node_type"]]["resources"] == {
        "CPU": 0,
        "GPU": 0,
    }
    assert "~/.ray/auth_token" in given["file_mounts"].values()
    starts = [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in given[key]
        if "ray start" in line
    ]
    assert len(starts) == 2 and all("RAY_AUTH_MODE=token" in line for line in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0] and "0.0.0.0" not in str(given)
    known = help_of("ray", "start")
    for option in re.findall(r" (--[a-z-]+)", " ".join(starts)):
        assert option in known, f"{option} is none of `ray start`"


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
    with pytest.raises(ConfigError, match="wait for one that is starting"):
        check_nodes(asked, [head])
    assert check_nodes(asked, [head, *there * [{"CPU": 8.0, "GPU": 1.0}]]) == there < most


# -------------------------------------------------------------------------------------- KubeRay


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
        mounted = {each["name"] for each in container["volumeMounts"]}
        assert mounted == {each["name"] for each in group["template"]["spec"]["volumes"]}
    gpus = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert gpus == "1"


def test_a_cluster_on_kubernetes() -> None:
    given = loaded("raycluster.yaml")
    assert (given["apiVersion"], given["kind"]) == ("ray.io/v1", "RayCluster")
    check_cluster(given["spec"])


def test_a_job_on_kubernetes() -> None:
    given = loaded("rayjob.yaml")
    assert (given["apiVersion"], given["kind"]) == ("ray.io/v1", "RayJob")
    assert given["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode")
    assert given["spec"]["rayClusterSpec"] == loaded("raycluster.yaml")["spec"]
    check_cluster(given["spec"]["rayClusterSpec"])


def test_the_job_s_command_is_one() -> None:
    from ablate.cli.main import build_parser

    words = loaded("rayjob.yaml")["spec"]["entrypoint"].split()
    assert words[0] == "ablate"
    assert build_parser().parse_args(words[1:]).address == "auto"


# --------------------------------------------------------------------------------------- MLflow


@pytest.mark.slow
def test_mlflow_s_server() -> None:
    given = loaded("mlflow.yaml")
    services = given["services"]
    command = services["mlflow"]["command"]
    known = help_of("mlflow", "server")
    assert command[:2] == ["mlflow", "server"]
    for option in (word for word in command if word.startswith("--")):
        assert option in known, f"{option} is none of `mlflow server`"
    assert "${" not in str(command), "a secret on a command line"
    ports = [port for each in services.values() for port in each.get("ports", ())]
    assert len(ports) == 2 and all(port.startswith("127.0.0.1:") for port in ports)
    text = (FOLDER / "mlflow.yaml").read_text(encoding="utf-8")
    # Every secret comes from outside, and compose stops where one is missing.
    assert re.findall(r"\$\{[^}]*[^?]\}", text) == []
    assert set(re.findall(r"\$\{(\w+):\?\}", text)) == {
        "POSTGRES_PASSWORD",
        "MINIO_PASSWORD",
        "MLFLOW_ADMIN_PASSWORD",
        "MLFLOW_FLASK_SERVER_SECRET_KEY",
    }
    images = [each["image"] for each in services.values()]
    assert all(":" in image and not image.endswith(":latest") for image in images)
    used = {each.partition(":")[0] for one in services.values() for each in one.get("volumes", ())}
    assert used == given["volumes"].keys()


# --------------------------------------------------------------------------- shell and container


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    done = subprocess.run(
        [str(BIN / "shellcheck"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_the_ray_that_is_tested() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert f"FROM rayproject/ray:{constraint('ray')}-py311\n" in text
    assert len(run_lines()) == 2
