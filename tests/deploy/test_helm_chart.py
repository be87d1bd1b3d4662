"""The Helm chart makes the objects that kustomize makes, and refuses what is wrong."""

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.fixtures.helm import CHART, Helm, HelmError
from tests.fixtures.manifests import Document, installation, needs_kubectl

STORED = ("frontend", "hsc", "store-consumer", "autoscaler", "migrate")
IMAGE = "registry.example.org/duly"
WORKER = "registry.example.org/hello"
VALUES: Document = {
    "image": {"repository": IMAGE, "tag": "1.0"},
    "settings": {
        "all": {"DULY_RPC_ZONE": "east"},
        **{name: {"DULY_STORE_DSN": f"postgresql://{name}@10.0.0.5/duly"} for name in STORED},
    },
    "workers": {"hello": {"image": f"{WORKER}:2.0", "app": "examples.hello:app", "pool": "hello"}},
    "autoscaler": {"enabled": True},
    "certManager": {"enabled": True},
    "podMonitor": {"enabled": True},
}
_HASH = re.compile(r"-[a-z0-9]{10}")
_OF_BOTH = {"cert-manager.io", "monitoring.coreos.com"}


def changed(change: Callable[[Document], Any]) -> Document:
    values = deepcopy(VALUES)
    change(values)
    return values


def named(documents: list[Document]) -> dict[tuple[str, str], Document]:
    """Documents without what the two write differently: the names of ConfigMaps, and annotations."""
    found = {}
    for document in deepcopy(documents):
        if document["kind"] == "ConfigMap":
            document["metadata"]["name"] = _plain(document["metadata"]["name"])
        document["metadata"].pop("annotations", None)
        template = document.get("spec", {}).get("template")
        if template:
            template["metadata"].pop("annotations", None)
            for container in template["spec"]["containers"]:
                for source in container["envFrom"]:
                    source["configMapRef"]["name"] = _plain(source["configMapRef"]["name"])
        found[document["kind"], document["metadata"]["name"]] = document
    return found


def _plain(name: str) -> str:
    """Of a ConfigMap, without the hash that kustomize appends."""
    end = _HASH.fullmatch(name[-11:])
    return name[:-11] if end and any(each.isdigit() for each in end[0]) else name


def deployment_of(documents: list[Document], name: str) -> Document:
    return next(
        each for each in documents if (each["kind"], each["metadata"]["name"]) == ("Deployment", name)
    )


@needs_kubectl
@pytest.mark.parametrize("packed", [False, True], ids=["the folder", "a package"])
def test_helm_and_kustomize_make_the_same_objects(helm: Helm, tmp_path: Path, packed: bool) -> None:
    own = [
        {
            "name": f"duly-{name}",
            "behavior": "merge",
            "literals": [f"{key}={value}" for key, value in settings.items()],
        }
        for name, settings in VALUES["settings"].items()
    ]
    images = [
        {"name": "duly", "newName": IMAGE, "newTag": "1.0"},
        {"name": "duly-worker-hello", "newName": WORKER, "newTag": "2.0"},
    ]
    kustomized = installation(
        tmp_path,
        ("base", "autoscaler", "migrate"),
        ("autoscaler-pool", "cert-manager", "pod-monitor"),
        namespace="duly",
        configMapGenerator=own,
        images=images,
    )

    rendered = helm.render(VALUES, helm.package() if packed else CHART)

    by_helm, by_kustomize = named(rendered), named(kustomized)
    assert by_helm.keys() == by_kustomize.keys()
    for name, document in by_helm.items():
        assert document == by_kustomize[name]
    assert len(by_helm) == len(rendered)


def test_values_reach_the_objects_that_they_are_about(helm: Helm) -> None:
    values = changed(
        lambda values: values.update(
            deployments={
                "frontend": {
                    "replicas": 3,
                    "resources": {"limits": {"memory": "1Gi"}},
                    "pod": {"nodeSelector": {"disk": "ssd"}, "imagePullSecrets": [{"name": "registry"}]},
                },
                "console": {"replicas": 0},
            },
            workers={
                "mail": {"image": "mail:1", "app": "mail.tasks:app", "replicas": 5},
                "video": {
                    "image": "video:1",
                    "app": "video:app",
                    "pool": "gpu",
                    "settings": {"DULY_EXECUTOR_PROCESSES": "1"},
                },
            },
        )
    )

    rendered = helm.render(values)

    for document in rendered:
        if document["apiVersion"].partition("/")[0] not in _OF_BOTH:
            kubernetes_validate.validate(document, "1.29", strict=True)
    frontend, console, mail, video = (
        deployment_of(rendered, f"duly-{name}")["spec"]
        for name in ("frontend", "console", "worker-mail", "worker-video")
    )
    assert (frontend["replicas"], console["replicas"], mail["replicas"]) == (3, 0, 5)
    pod = frontend["template"]["spec"]
    assert pod["containers"][0]["resources"] == {
        "limits": {"memory": "1Gi"},
        "requests": {"cpu": "250m", "memory": "128Mi"},
    }
    assert (pod["nodeSelector"], pod["imagePullSecrets"]) == ({"disk": "ssd"}, [{"name": "registry"}])
    assert "replicas" not in video
    assert mail["template"]["spec"]["containers"][0]["args"] == ["worker", "mail.tasks:app"]
    objects = named(rendered)
    settings = objects["ConfigMap", "duly-worker-video-settings"]["data"]
    assert (settings["DULY_CONTROLLER_POOL"], settings["DULY_EXECUTOR_PROCESSES"]) == ("gpu", "1")
    assert objects["Role", "duly-autoscaler"]["rules"][0]["resourceNames"] == ["duly-worker-video"]
    assert "worker-hello" not in yaml.safe_dump_all(rendered)
    migration = [each for each in rendered if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert {each["kind"] for each in migration} == {"ServiceAccount", "ConfigMap", "Job"}


def test_a_changed_setting_replaces_the_pods_that_have_it_and_no_others(helm: Helm) -> None:
    def marks(values: Document) -> dict[str, str]:
        return {
            each["metadata"]["name"]: each["spec"]["template"]["metadata"]["annotations"]["duly.io/settings"]
            for each in helm.render(values)
            if each["kind"] == "Deployment"
        }

    before = marks(VALUES)
    of_hsc = marks(changed(lambda values: values["settings"]["hsc"].update(DULY_RPC_CALL_TIMEOUT="9s")))
    of_all = marks(changed(lambda values: values["settings"]["all"].update(DULY_RPC_ZONE="west")))

    assert {name for name in before if of_hsc[name] != before[name]} == {"duly-hsc"}
    assert {name for name in before if of_all[name] != before[name]} == {*before}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda values: values["settings"].pop("hsc"), r"/settings/hsc.*missing property 'DULY_STORE_DSN'"),
        (lambda values: values["settings"].pop("migrate"), r"/settings.*migrate.*DULY_STORE_DSN"),
        (
            lambda values: values["settings"]["hsc"].update(DULY_STORE_DSN="postgresql://hsc:secret@db/duly"),
            r"DULY_STORE_DSN of hsc has a password: put it into the Secret",
        ),
        (lambda values: values["settings"]["all"].update(LOG="debug"), r"'LOG' does not match"),
        (lambda values: values["settings"]["all"].update(DULY_RPC_ZONE=1), r"DULY_RPC_ZONE.*want string"),
        (lambda values: values.update(replicas=3), r"additional properties 'replicas' not allowed"),
        (lambda values: values["image"].update(repository=""), r"/image/repository.*minLength"),
        (lambda values: values.update(deployments={"hsc": {"replicas": -1}}), r"/deployments/hsc/replicas"),
        (lambda values: values["workers"]["hello"].update(app="examples.hello"), r"/workers/hello/app"),
        (lambda values: values["workers"]["hello"].update(replicas=2), r"/workers/hello.*not"),
        (lambda values: values["workers"].update({"Mail": {}}), r"/workers.*Mail"),
        (
            lambda values: values.update(autoscaler={"enabled": False}),
            r"duly-worker-hello: a worker with a pool needs autoscaler.enabled",
        ),
    ],
)
def test_values_that_are_wrong_are_refused_by_name(
    helm: Helm, change: Callable[[Document], Any], says: str
) -> None:
    with pytest.raises(HelmError, match=re.compile(says, re.DOTALL)) as refused:
        helm.render(changed(change))

    assert "secret" not in str(refused.value)
