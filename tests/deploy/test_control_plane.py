"""A control plane of Kubernetes admits the manifests, runs their Deployments, drains their nodes, and scales workers with the rights that they give.

No container runs: what a pod does is in tests/system/test_rolling_restarts.py.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from duly_autoscaler.drivers.kubernetes import KubernetesDriver
from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import KubernetesSpec
from duly_core.pools.rules import Pool
from tests.fixtures.control_plane import NODES, ApiError, ControlPlane, Kubelets, control_plane
from tests.fixtures.manifests import FOLDER, Document, installation, kustomized
from tests.fixtures.waiting import wait_until

pytestmark = [
    pytest.mark.system,
    pytest.mark.long,  # starts a control plane; test_deploy_kubernetes.py checks the manifests by their schemas
    pytest.mark.timeout(400),
]

NAMESPACE = "tasks"
WITHIN = timedelta(seconds=60)
ROLLED_OUT = ("rollout", "status", "-n", NAMESPACE, "--timeout=60s")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def kubelets(plane: ControlPlane) -> Iterator[Kubelets]:
    plane.kubectl("create", "namespace", NAMESPACE)
    made = Kubelets(plane)
    made.start()
    yield made
    plane.kubectl("uncordon", *NODES)
    plane.kubectl("delete", "namespace", NAMESPACE, "--timeout=90s")
    made.stop()
    assert made.error is None


@pytest.fixture
def documents(tmp_path: Path) -> list[Document]:
    """Of an installation whose autoscaler scales workers."""
    folder = tmp_path / "installation"
    folder.mkdir()
    return installation(folder, ("base", "autoscaler"), ("autoscaler-pool",))


@pytest.fixture
def deployments(plane: ControlPlane, kubelets: Kubelets, documents: list[Document]) -> list[str]:
    """They run, two pods each."""
    plane.apply(documents)
    names = [each["metadata"]["name"] for each in documents if each["kind"] == "Deployment"]
    plane.kubectl("-n", NAMESPACE, "scale", "deployment/duly-worker-hello", "--replicas=2")
    for name in names:
        plane.kubectl(*ROLLED_OUT, f"deployment/{name}")
    return names


def test_each_document_is_admitted_and_a_wrong_one_is_not(
    plane: ControlPlane, kubelets: Kubelets, documents: list[Document]
) -> None:
    migration = [
        {**each, "metadata": {**each["metadata"], "namespace": NAMESPACE}}
        for each in kustomized(FOLDER / "migrate")
    ]
    wrong = [each for each in documents if each["kind"] == "Deployment"][:1]
    wrong[0] = {**wrong[0], "spec": {**wrong[0]["spec"], "selector": {"matchLabels": {"is": "another"}}}}

    checked = plane.apply(documents, "--dry-run=server")
    plane.apply(documents)
    plane.apply(migration)
    plane.kubectl("-n", NAMESPACE, "wait", "--for=condition=complete", "--timeout=60s", "job/duly-migrate")
    with pytest.raises(AssertionError, match=r"selector.* does not match template"):
        plane.apply(wrong, "--dry-run=server")

    assert len(checked.splitlines()) == len(documents)
    assert "Warning" not in checked


def test_a_drain_of_a_node_leaves_a_ready_pod_of_each_deployment_and_moves_the_others(
    plane: ControlPlane, kubelets: Kubelets, deployments: list[str]
) -> None:
    before = {pod["spec"]["nodeName"] for name in deployments for pod in plane.pods(NAMESPACE, name)}
    kubelets.count_from_now()

    plane.kubectl("drain", NODES[0], "--delete-emptydir-data", "--timeout=90s")
    for name in deployments:
        plane.kubectl(*ROLLED_OUT, f"deployment/{name}")

    assert before == {*NODES}
    for name in deployments:
        pods = plane.pods(NAMESPACE, name)
        assert {pod["spec"]["nodeName"] for pod in pods} == {NODES[1]}
        assert len(pods) == 2
        assert kubelets.least(name) >= 1


def test_two_pods_of_a_deployment_are_not_evicted_at_a_time(
    plane: ControlPlane, kubelets: Kubelets, deployments: list[str]
) -> None:
    plane.kubectl("cordon", *NODES)  # so that no other pod comes
    version = "policy/v1" if plane.version >= (1, 22) else "policy/v1beta1"

    def evict(pod: Document) -> None:
        about = {"name": pod["metadata"]["name"], "namespace": NAMESPACE}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{about['name']}/eviction"
        plane.call("POST", path, {"apiVersion": version, "kind": "Eviction", "metadata": about})

    for name in deployments:
        one, other = plane.pods(NAMESPACE, name)
        evict(one)
        with pytest.raises(ApiError, match="disruption budget") as refused:
            evict(other)
        assert refused.value.status == 429


def test_a_changed_setting_replaces_all_pods_and_no_deployment_has_less_than_two(
    plane: ControlPlane, kubelets: Kubelets, deployments: list[str], tmp_path: Path
) -> None:
    before = {name: {pod["metadata"]["name"] for pod in plane.pods(NAMESPACE, name)} for name in deployments}
    kubelets.count_from_now()
    changed = {"name": "duly-all", "behavior": "merge", "literals": ["DULY_TELEMETRY_LOG_LEVEL=debug"]}

    plane.apply(
        installation(tmp_path, ("base", "autoscaler"), ("autoscaler-pool",), configMapGenerator=[changed])
    )
    for name in deployments:
        plane.kubectl(*ROLLED_OUT, f"deployment/{name}")

    for name in deployments:
        after = {pod["metadata"]["name"] for pod in plane.pods(NAMESPACE, name)}
        assert len(after) == 2
        assert not after & before[name]
        assert kubelets.least(name) >= 2


async def test_the_autoscaler_scales_its_deployment_with_the_rights_of_the_manifests_and_may_do_nothing_else(
    plane: ControlPlane,
    kubelets: Kubelets,
    deployments: list[str],
    documents: list[Document],
    tmp_path: Path,
) -> None:
    account = plane.account(NAMESPACE, "duly-autoscaler", tmp_path / "account")
    driver = KubernetesDriver(KubernetesSpec(server=plane.url, folder=str(account)))
    token = (account / "token").read_text()
    worker = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/duly-worker-hello"

    async def scale(name: str, workers: int) -> None:
        pool = Pool(
            name="hello",
            lambdas=("hello.*",),
            maximum=9,
            driver="kube",
            driver_settings={"deployment": name},
        )
        await driver.ensure(Order(pool, workers, 2))

    def has(workers: int) -> bool:
        return len(plane.pods(NAMESPACE, "duly-worker-hello")) == workers

    await scale("duly-worker-hello", 5)
    wait_until(lambda: has(5), WITHIN)
    plane.apply(documents)  # which leaves the number alone
    kept = plane.call("GET", worker)["spec"]["replicas"]
    await scale("duly-worker-hello", 0)
    wait_until(lambda: has(0), WITHIN)
    with pytest.raises(DriverError, match=r'answered 403 .*cannot patch resource "deployments/scale"'):
        await scale("duly-frontend", 0)
    refused = []
    for method, path, body in (
        ("GET", worker, None),
        ("GET", f"{worker}/scale", None),
        ("PATCH", worker, {"spec": {"replicas": 1}}),
        ("DELETE", worker, None),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", None),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {}),
        ("PATCH", worker.replace(NAMESPACE, "default") + "/scale", {"spec": {"replicas": 1}}),
    ):
        with pytest.raises(ApiError) as error:
            plane.call(method, path, body, kind="application/merge-patch+json", token=token)
        refused.append(error.value.status)

    assert kept == 5
    assert refused == [403] * len(refused)
