"""What can be said about deploy/kubernetes without a cluster: its schema, and that it names what exists."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import kubernetes_validate
import pytest
from psycopg.conninfo import conninfo_to_dict

from duly_autoscaler.drivers.specs import KubernetesSpec
from duly_autoscaler.settings import AutoscalerSettings
from duly_console.settings import ConsoleSettings
from duly_controller.settings import ControllerSettings, DrainSettings
from duly_core.config.settings import parse_duration
from duly_core.rpc.settings import RpcSettings
from duly_frontend.settings import FrontendSettings
from duly_hsc.settings import HscSettings
from duly_local.all_settings import sections
from tests.fixtures.command_help import help_of, options
from tests.fixtures.forked_process import ROOT
from tests.fixtures.manifests import (
    FOLDER,
    RUNNING,
    Document,
    Workload,
    documents,
    installation,
    kustomization,
    kustomized,
    needs_kubectl,
    selects,
    workloads,
)
from tests.fixtures.rollouts import NAMES_ARE_CACHED_FOR

FOLDERS = sorted(path.parent.name for path in FOLDER.glob("*/kustomization.yaml"))
OF_KUBERNETES = (*RUNNING, "migrate", "autoscaler-pool")
VERSIONS = ("1.29", "1.37")
"""The oldest that the manifests are meant for, and the newest that the library knows."""
WORKLOADS = workloads()
SERVERS = ("duly-frontend", "duly-hsc", "duly-store-consumer")
_KILLED_AFTER = timedelta(seconds=10)
"""How long after the grace a Controller kills its Executors (docs/operators/processes.md)."""


@pytest.fixture(params=WORKLOADS.values(), ids=WORKLOADS)
def workload(request) -> Workload:
    return request.param


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", OF_KUBERNETES)
def test_the_documents_fit_the_schema_of_kubernetes(folder: str, version: str) -> None:
    for document in documents(folder):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_document_that_does_not_fit_is_noticed() -> None:
    document = WORKLOADS["duly-hsc"].document
    wrong = document | {"spec": document["spec"] | {"replica": 2}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[1], strict=True)


FOREIGN = {"keda.sh", "monitoring.coreos.com", "cert-manager.io"}


def checked(documents: list[Document]) -> dict[tuple[str, str], Document]:
    """What kustomize made, by kind and name: it fits the schema, and names what is there."""
    rendered = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    for document in rendered.values():
        if document["apiVersion"].partition("/")[0] not in FOREIGN:
            kubernetes_validate.validate(document, VERSIONS[1], strict=True)
    deployments = [each for (kind, _), each in rendered.items() if kind in {"Deployment", "Job"}]
    assert deployments
    for document in deployments:
        template = document["spec"]["template"]
        assert template["metadata"]["labels"]["app.kubernetes.io/part-of"] == "duly"
        (container,) = template["spec"]["containers"]
        for source in container["envFrom"]:
            assert ("ConfigMap", source["configMapRef"]["name"]) in rendered
    return rendered


@needs_kubectl
@pytest.mark.parametrize("folder", ["base", "migrate", "example", "example/migrate"])
def test_kustomize_renders_a_folder(folder: str) -> None:
    assert checked(kustomized(FOLDER / folder))


OVERLAYS = {
    "keda": (("base",), ("keda",)),
    "keda-pool": (("base", "autoscaler"), ("keda-pool", "cert-manager", "pod-monitor")),
    "autoscaler-pool": (("base", "autoscaler"), ("autoscaler-pool",)),
}
"""What scales workers: the resources and components of an installation."""


@needs_kubectl
@pytest.mark.parametrize("scaled_by", OVERLAYS)
def test_kustomize_renders_what_scales_workers(scaled_by: str, tmp_path: Path) -> None:
    resources, components = OVERLAYS[scaled_by]
    dsn = "postgresql://autoscaler_user@10.0.0.5/duly"
    own = {"name": "duly-autoscaler", "behavior": "merge", "literals": [f"DULY_STORE_DSN={dsn}"]}
    more = {"configMapGenerator": [own]} if "autoscaler" in resources else {}

    rendered = checked(installation(tmp_path, resources, components, **more))

    worker = rendered["Deployment", "duly-worker-hello"]
    assert "replicas" not in worker["spec"]  # an apply leaves the number alone
    pool = environment_of(rendered, worker).get("DULY_CONTROLLER_POOL")
    assert pool == (None if scaled_by == "keda" else "hello")
    assert (("ScaledObject", "duly-worker-hello") in rendered) is (scaled_by != "autoscaler-pool")
    if "autoscaler" in resources:
        autoscaler = rendered["Deployment", "duly-autoscaler"]
        assert environment_of(rendered, autoscaler)["DULY_STORE_DSN"] == dsn
        calls_the_api = autoscaler["spec"]["template"]["spec"]["automountServiceAccountToken"]
        assert calls_the_api is (scaled_by == "autoscaler-pool")
        assert (("RoleBinding", "duly-autoscaler") in rendered) is calls_the_api
    # kustomize changes names that it takes for those of ConfigMaps
    of_roles = {
        ("Deployment", name)
        for (kind, _), each in rendered.items()
        if kind == "Role"
        for rule in each["rules"]
        for name in rule["resourceNames"]
    }
    assert of_roles <= rendered.keys()
    assert bool(of_roles) is (scaled_by == "autoscaler-pool")


def environment_of(rendered: dict[tuple[str, str], Document], deployment: Document) -> dict[str, str]:
    """The settings that a container of a rendered Deployment gets."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        found |= rendered["ConfigMap", source["configMapRef"]["name"]]["data"]
    return found


def test_every_file_is_in_a_kustomization() -> None:
    named = {f"{folder}/{file}" for folder in FOLDERS for file in kustomization(folder)["resources"]}

    found = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.yaml")}

    assert found - {f"{folder}/kustomization.yaml" for folder in FOLDERS} == named - {"example/../base"}


def test_a_container_runs_a_command_that_exists(workload: Workload) -> None:
    command, *arguments = workload.container["args"]

    said = help_of(command)

    assert said is not None, f"duly {command} --help fails"
    assert [option for option in options(arguments) if option not in said] == []


def test_a_container_has_settings_that_exist_and_can_be_read(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        f"DULY_{section.SECTION}_{name}".upper() for section in sections() for name in section.model_fields
    }
    for name, value in workload.environment.items():
        monkeypatch.setenv(name, value)

    assert set(workload.environment) <= known
    for section in sections():
        section.load()


def test_ports_are_those_of_the_settings(workload: Workload) -> None:
    names = {
        "duly-frontend": {"grpc": "FRONTEND_LISTEN", "health": "FRONTEND_HEALTH_LISTEN"},
        "duly-hsc": {"grpc": "HSC_LISTEN", "health": "HSC_HEALTH_LISTEN"},
        "duly-store-consumer": {"health": "STORE_CONSUMER_LISTEN"},
        "duly-worker-hello": {"health": "CONTROLLER_HEALTH_LISTEN"},
        "duly-console": {"https": "CONSOLE_LISTEN"},
        "duly-autoscaler": {"health": "AUTOSCALER_LISTEN", "keda": "AUTOSCALER_KEDA_ADDRESS"},
        "duly-migrate": {},
    }[workload.name]
    said = {port: _port(workload.environment[f"DULY_{name}"]) for port, name in names.items()}
    if workload.name != "duly-migrate":
        said["metrics"] = _port(workload.environment["DULY_TELEMETRY_METRICS_LISTEN"])
    if "worker" in workload.name:
        first = int(workload.environment["DULY_CONTROLLER_EXECUTOR_METRICS_PORT"])
        said |= {f"executor-{n}": first + n for n in range(ControllerSettings().executors)}

    assert workload.ports == said
    if said:
        probe = workload.container["readinessProbe"]
        if workload.name == "duly-console":
            assert probe["httpGet"] == {"path": "/healthz", "port": "https", "scheme": "HTTPS"}
            assert workload.environment["DULY_RPC_CERT_FILE"]  # so it serves HTTPS
        else:
            assert probe["grpc"]["port"] == said["health"]
        assert "livenessProbe" not in workload.container


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_services_are_where_workers_call() -> None:
    services = {each["metadata"]["name"]: each for each in documents("base") if each["kind"] == "Service"}
    console = services.pop("duly-console")
    worker = WORKLOADS["duly-worker-hello"].environment

    called = {worker["DULY_CONTROLLER_FRONTEND_ADDRESS"], worker["DULY_CONTROLLER_HSC_ADDRESS"]}

    assert called == {f"dns:///{name}:{each['spec']['ports'][0]['port']}" for name, each in services.items()}
    usual = {"duly-frontend": FrontendSettings().listen, "duly-hsc": HscSettings().listen}
    for name, service in services.items():
        assert service["spec"]["clusterIP"] == "None"  # a name with several addresses, as dns:/// needs
        (port,) = service["spec"]["ports"]
        assert port["port"] == WORKLOADS[name].ports[port["targetPort"]] == _port(usual[name])
    (port,) = console["spec"]["ports"]
    assert port["port"] == WORKLOADS["duly-console"].ports[port["targetPort"]]
    assert port["port"] == _port(ConsoleSettings().listen)
    assert WORKLOADS["duly-console"].environment["DULY_CONSOLE_FRONTEND_ADDRESS"] in called


def test_the_console_reaches_the_frontend_alone_and_the_frontend_lets_it_in() -> None:
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in documents("base")
        if each["kind"] == "NetworkPolicy"
    }
    console, frontend = policies["duly-console"], policies["duly-frontend"]
    labels = {name: each.labels for name, each in WORKLOADS.items()}

    assert set(console["policyTypes"]) == {"Ingress", "Egress"}
    calls, asks = console["egress"]
    reached = {
        name for name, each in labels.items() for to in calls["to"] if selects(to["podSelector"], each)
    }
    assert reached == {"duly-frontend"}
    assert [port["port"] for port in calls["ports"]] == [WORKLOADS["duly-frontend"].ports["grpc"]]
    assert {port["port"] for port in asks["ports"]} == {53}
    assert any(
        selects(each["podSelector"], labels["duly-console"])
        for rule in frontend["ingress"]
        for each in rule["from"]
        if "namespaceSelector" not in each
    )
    # no other policy adds to what it reaches
    others = [policy for name, policy in policies.items() if name != "duly-console" and "egress" in policy]
    assert others
    assert not any(selects(policy["podSelector"], labels["duly-console"]) for policy in others)


def test_a_pod_gets_the_time_that_its_drain_takes(workload: Workload) -> None:
    has = workload.pod.get("terminationGracePeriodSeconds", 30)
    hook = (
        workload.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
    )

    if "worker" in workload.name:
        drain = parse_duration(workload.environment["DULY_EXECUTOR_DRAIN_GRACE"])
        assert drain == DrainSettings().drain_grace
        needs = drain + _KILLED_AFTER + timedelta(seconds=10)
    else:
        needs = RpcSettings().shutdown_grace + timedelta(seconds=int(hook[1]) + 10)

    assert timedelta(seconds=has) >= needs


def test_a_server_that_callers_find_by_name_serves_until_caches_of_names_know_the_next_one() -> None:
    headless = {
        each["metadata"]["name"]
        for each in documents("base")
        if each["kind"] == "Service" and each["spec"].get("clusterIP") == "None"
    }

    hooks = {name: WORKLOADS[name].container["lifecycle"]["preStop"]["exec"]["command"] for name in headless}

    assert headless == {"duly-frontend", "duly-hsc"}
    for command, seconds in hooks.values():
        assert command == "sleep"
        assert timedelta(seconds=int(seconds)) > NAMES_ARE_CACHED_FOR


def test_a_pod_has_no_rights_that_it_does_not_need(workload: Workload) -> None:
    pod, container = workload.pod, workload.container

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"--uid {pod['securityContext']['runAsUser']} " in (ROOT / "deploy" / "Containerfile").read_text()
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "emptyDir" in workload.mounts["/tmp"]


def test_a_pod_gets_no_variables_that_look_like_settings(workload: Workload) -> None:
    # those of service links would be DULY_HSC_PORT and so on, which a process refuses
    assert workload.pod["enableServiceLinks"] is False


def test_secrets_are_files_and_only_those_that_a_process_needs(workload: Workload) -> None:
    secrets = {path: volume["secret"] for path, volume in workload.mounts.items() if "secret" in volume}
    own = workload.name.removeprefix("duly-")

    assert "env" not in workload.container
    assert all(secret["defaultMode"] == 0o440 for secret in secrets.values())
    assert conninfo_to_dict(workload.environment.get("DULY_STORE_DSN", "")).get("password") is None
    if own == "worker-hello":
        assert not any(name.startswith("DULY_STORE") for name in workload.environment)
        assert [item["key"] for item in secrets["/etc/duly/tls"]["items"]] == ["ca.crt"]
        assert {secret["secretName"] for secret in secrets.values()} == {
            "duly-tls",
            "duly-worker-hello-token",
        }
    elif own == "console":
        assert not any(name.startswith("DULY_STORE") for name in workload.environment)
        # the same keys for all pods, and not the servers' private key
        assert {path: secret["secretName"] for path, secret in secrets.items()} == {
            "/etc/duly/console": "duly-console-keys",
            "/etc/duly/tls": "duly-console-tls",
        }
        assert workload.environment["DULY_CONSOLE_SECRET_FILE"] == "/etc/duly/console/keys"
    else:
        assert secrets["/etc/duly/store"]["secretName"] == f"duly-store-{own}"
        assert conninfo_to_dict(workload.environment["DULY_STORE_DSN"])["sslmode"] == "verify-full"


def test_files_that_settings_name_are_in_a_mounted_folder(workload: Workload) -> None:
    files = [
        match for value in workload.environment.values() for match in re.findall(r"(/etc/[^&\s]+)", value)
    ]

    assert files
    for file in files:
        assert file.rpartition("/")[0] in workload.mounts


def test_servers_ask_who_calls_and_serve_tls() -> None:
    for name in ("duly-frontend", "duly-hsc"):
        environment = WORKLOADS[name].environment
        assert environment["DULY_AUTH_MODE"] == "required"
        assert environment["DULY_RPC_CERT_FILE"]
        assert "DULY_RPC_ALLOW_PLAINTEXT" not in environment


def test_what_selects_pods_selects_some() -> None:
    pods = [each.labels for each in WORKLOADS.values()]

    selectors = list(_selectors())

    assert len(selectors) > 10
    for selector in selectors:
        assert any(selects(selector, labels) for labels in pods), selector


def _selectors() -> Iterator[dict]:
    for folder in (*RUNNING, "autoscaler-pool", "pod-monitor"):
        for document in documents(folder):
            spec = document.get("spec", {})
            if document["kind"] == "Service":
                yield {"matchLabels": spec["selector"]}
            elif "podSelector" in spec or "selector" in spec:
                yield spec.get("podSelector", spec.get("selector"))


def test_a_deployment_has_a_budget_of_disruptions_and_two_pods() -> None:
    budgets = {
        each["metadata"]["name"]
        for folder in RUNNING
        for each in documents(folder)
        if each["kind"] == "PodDisruptionBudget"
    }
    deployments = {name: each for name, each in WORKLOADS.items() if each.document["kind"] == "Deployment"}

    assert budgets == set(deployments)
    assert all(each.document["spec"]["replicas"] >= 2 for each in deployments.values())


def test_policies_and_monitors_name_ports_that_exist() -> None:
    named = {
        port["port"]
        for folder in RUNNING
        for document in documents(folder)
        if document["kind"] == "NetworkPolicy"
        for rule in document["spec"].get("ingress", [])
        for port in rule["ports"]
    } | {each["port"] for each in documents("pod-monitor")[0]["spec"]["podMetricsEndpoints"]}

    assert named == {name for each in WORKLOADS.values() for name in each.ports} - {"health"}


def test_workers_are_scaled_by_a_metric_and_a_target_that_exist() -> None:
    (scaled,) = documents("keda")
    (trigger,) = scaled["spec"]["triggers"]
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")

    (metric,) = re.findall(r"duly_\w+", trigger["metadata"]["query"])

    assert re.search(rf"^\| `{metric}` \| gauge \| `lambda`, ", metrics, re.MULTILINE)
    assert scaled["spec"]["scaleTargetRef"]["name"] in WORKLOADS
    (patch,) = kustomization("keda")["patches"]
    assert patch["target"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    budget = WORKLOADS[patch["target"]["name"]].pod["terminationGracePeriodSeconds"]
    (policy,) = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"][
        "policies"
    ]
    assert policy["periodSeconds"] > budget  # the next worker goes when the last one has drained


def test_workers_of_a_pool_are_scaled_by_the_plan_of_the_autoscaler() -> None:
    scaled, authentication = documents("keda-pool")
    (trigger,) = scaled["spec"]["triggers"]
    component = kustomization("keda-pool")
    (settings,) = component["configMapGenerator"]
    (pool,) = settings["literals"]

    target = scaled["spec"]["scaleTargetRef"]["name"]

    assert target in WORKLOADS
    assert {target} == {patch["target"]["name"] for patch in component["patches"]}
    assert settings["name"] == f"{target}-settings"
    assert pool == f"DULY_CONTROLLER_POOL={trigger['metadata']['pool']}"
    ControllerSettings.load(pool=trigger["metadata"]["pool"])
    assert (trigger["type"], trigger["metricType"]) == ("external", "AverageValue")
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    (secret,) = authentication["spec"]["secretTargetRef"]
    assert (secret["parameter"], secret["name"]) == ("caCert", "duly-tls")
    assert scaled["spec"]["minReplicaCount"] == 0
    (policy,) = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]["policies"]
    assert policy["value"] >= scaled["spec"]["maxReplicaCount"]  # the plan is not slowed down


def test_keda_calls_the_service_of_the_autoscaler_by_a_name_of_its_certificate() -> None:
    (service,) = [each for each in documents("autoscaler") if each["kind"] == "Service"]
    scaled, _ = documents("keda-pool")
    (trigger,) = scaled["spec"]["triggers"]
    (certificate,) = [
        each for each in documents("cert-manager") if each["spec"].get("secretName") == "duly-tls"
    ]
    autoscaler = WORKLOADS["duly-autoscaler"]

    host, _, port = trigger["metadata"]["scalerAddress"].rpartition(":")

    assert host in certificate["spec"]["dnsNames"]
    assert host.partition(".")[0] == service["metadata"]["name"]
    (served,) = service["spec"]["ports"]
    assert int(port) == served["port"] == autoscaler.ports[served["targetPort"]]
    assert autoscaler.environment["DULY_RPC_CERT_FILE"]  # so it serves TLS


def test_the_autoscaler_may_scale_the_deployment_of_the_pool_and_nothing_else() -> None:
    role, binding, policy = documents("autoscaler-pool")
    component = kustomization("autoscaler-pool")
    (settings,) = component["configMapGenerator"]
    worker, autoscaler = (patch["target"]["name"] for patch in component["patches"])
    drivers = AutoscalerSettings.load(
        drivers=WORKLOADS["duly-autoscaler"].environment["DULY_AUTOSCALER_DRIVERS"]
    ).driver_specs

    (rule,) = role["rules"]

    # what the driver calls: PATCH /apis/apps/v1/namespaces/NAMESPACE/deployments/NAME/scale
    (spec,) = drivers.values()
    assert isinstance(spec, KubernetesSpec)
    assert rule == {
        "apiGroups": ["apps"],
        "resources": [f"{spec.resource}/scale"],
        "resourceNames": [worker],
        "verbs": ["patch"],
    }
    assert (worker, autoscaler) == ("duly-worker-hello", "duly-autoscaler")
    assert settings["name"] == f"{worker}-settings"
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [WORKLOADS[autoscaler].pod["serviceAccountName"]]
    assert policy["spec"]["policyTypes"] == ["Egress"]


def test_the_example_names_the_images_and_settings_of_the_base() -> None:
    example = kustomization("example")

    images = {each["name"] for each in example["images"]}

    assert images == {each.container["image"] for each in WORKLOADS.values()}
    for made in example["configMapGenerator"]:
        known = WORKLOADS[made["name"]].environment
        assert {literal.partition("=")[0] for literal in made["literals"]} <= set(known)


def test_certificates_have_the_names_of_the_services() -> None:
    names = {
        each["spec"]["secretName"]: {name.partition(".")[0] for name in each["spec"]["dnsNames"]}
        for each in documents("cert-manager")
        if "dnsNames" in each.get("spec", {})
    }
    services = {
        each["metadata"]["name"]
        for folder in RUNNING
        for each in documents(folder)
        if each["kind"] == "Service"
    }

    assert names == {
        "duly-tls": services - {"duly-console"},
        "duly-console-tls": {"duly-console", "localhost"},
    }
