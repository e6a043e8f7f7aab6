"""The chart and the overlays: rendered, checked by kubeconform and taken by a real API server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

import engine
from engine.configuration.berth import BerthDocument
from engine.configuration.scheduler import SchedulerDocument
from engine.configuration.settings import parse, without_nulls
from engine.policy.findings import new_compiler
from tests.cluster import binaries, manifests
from tests.cluster.process import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("needs_programs")]

OVERLAYS = sorted(f"overlays/{path.name}" for path in (manifests.KUSTOMIZE / "overlays").iterdir())
EVERYTHING = (
    *manifests.MONITORED,
    "--set=webhook.enabled=true",
    "--set=webhook.certificateSecret=of-cert-manager",
    "--set=extender.enabled=true",
    "--set=extender.certificateSecret=of-cert-manager",
    "--set=everyPolicy=true",
    "--set=berth.policies.tenants.configMap=berth-policies",
    "--set=berth.policies.tenants.namespaces[0]=team-*",
    "--set=extraReads[0].apiGroups[0]=example.org",
    "--set=extraReads[0].resources[0]=racks",
    "--set=imagePullSecrets[0].name=registry",
    "--set=tolerations[0].operator=Exists",
    "--set=serviceMonitor.labels.release=prometheus",
    "--set=commonLabels.owner=platform",
    "--set=serviceMonitor.labels.owner=platform",
    "--set=dashboard.labels.owner=platform",
    "--set=prometheusRule.labels.owner=platform",
    "--set=podLabels.team=platform",
    "--set=podAnnotations.team=platform",
    "--set=extraEnv[0].name=HTTPS_PROXY",
    "--set=extraEnv[0].value=http://proxy:3128",
    "--set=extraArgs[0]=-v",
)
PLUGIN = "scheduler.profiles[0].schedulerName=berth,scheduler.profiles[0].pluginConfig[0]"
ARGS = "scheduler.profiles[0].pluginConfig[0].args"
FIT = f"{PLUGIN}.name=NodeResourcesFit"
KINDS_OF_BASE = {
    "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "FlowSchema",
}  # fmt: skip


@pytest.mark.parametrize("path", manifests.made(), ids=lambda path: path.name)
def test_what_is_made_from_the_chart_is_up_to_date(path):
    assert path.read_text("utf-8") == manifests.made()[path]


def test_helm_finds_nothing_to_complain_about():
    manifests.helm("lint", "--strict", manifests.CHART, *EVERYTHING)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--set=replcas=3", "'replcas' not allowed"),
        ("--set=replicas=two", "replicas"),
        ("--set=image.digest=sha256:abc", "image/digest"),
        ("--set=policies.files.readme=x", "policies/files"),
        ("--set=scheduler.kind=Pod", "/scheduler/kind"),
        ("--set=berth.apiVersion=v1", "/berth/apiVersion"),
        ("--set=berth.policies.dir=/etc/policies", "/berth/policies/dir"),
        ("--set=berth.policies.configMap=a/b", "/berth/policies/configMap"),
        ("--set=berth=null", "missing property 'berth'"),
        ("--set=networkPolicy=null", "missing property 'networkPolicy'"),
        ("--set=networkPolicy.apiServerPorts=null", "missing property 'apiServerPorts'"),
        ("--set=scheduler.profiles[0].name=x", "schedulerName"),
        ("--set=scheduler.profiles[0].plugins.scroe.enabled[0].name=x", "'scroe' not allowed"),
        (f"--set={FIT},{ARGS}.scoringStrategy.tpye=MostAllocated", "'tpye' not allowed"),
        (f"--set={FIT},{ARGS}.ignoredResources=cpu", "/args/ignoredResources"),
        (f"--set={PLUGIN}.name=NodeName,{ARGS}.mode=x", "'mode' not allowed"),
        (f"--set={PLUGIN}.name=NodeAffinity,{ARGS}.addedAffinity.x=y", "'x' not allowed"),
        ("--set=scheduler.leaderElecton.leaderElect=false", "'leaderElecton' not allowed"),
        ("--set=scheduler.podMaxBackoffSeconds=ten", "/scheduler/podMaxBackoffSeconds"),
        ("--set=berth.prometheus.ulr=http://p:9090", "'ulr' not allowed"),
        ("--set=berth.metrics.load.every=15s", "missing property 'promql'"),
        ("--set=extraReads[0].resources[0]=secrets", "extraReads"),
        ("--set=networkPolicy.apiServerPorts[0]=0", "apiServerPorts"),
        ("--set-string=fullnameOverride=on", "fullnameOverride"),
        ("--set-string=fullnameOverride=1e3", "fullnameOverride"),
        ("--set=extraEnv[0].value=x", "extraEnv"),
        ("--set=serviceAccount.create=false", "/serviceAccount/name"),
        ("--set=extraVolumes[0].name=tmp", "/extraVolumes/0/name"),
        ("--set=extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/tmp", "/mountPath"),
        (r"--set=commonLabels.helm\.sh/chart=x", "commonLabels"),
        (r"--set=podLabels.app\.kubernetes\.io/name=x", "podLabels"),
        ("--set=podAnnotations.checksum/config=x", "podAnnotations"),
    ],
)
def test_values_that_cannot_work_are_refused(flag, said):
    done = manifests.helm("template", "berth", manifests.CHART, flag, check=False)
    assert done.returncode != 0
    assert said in done.stderr


def test_labels_that_a_cluster_demands_and_a_mesh_reads_are_on_all_objects_and_on_all_pods():
    there = manifests.objects(manifests.template(*EVERYTHING))
    assert {one["metadata"]["labels"].get("owner") for one in there} == {"platform"}
    pods = [one["spec"]["template"]["metadata"] for one in there if one["kind"] == "Deployment"]
    assert len(pods) == 3
    assert all(one["labels"]["team"] == "platform" for one in pods)
    assert all(one["annotations"]["team"] == "platform" for one in pods)


def test_values_may_say_what_a_configuration_file_says(tmp_path):
    scheduler, berth = yaml.safe_load_all((manifests.ROOT / "examples/config.yaml").read_text())
    del berth["policies"]["configMap"]
    for one in (scheduler, berth):
        del one["apiVersion"], one["kind"]
    scheduler["extenders"] = None  # which is as if it was not there
    fit = {"scoringStrategy": {"type": "MostAllocated"}, "ignoredResources": None}
    scheduler["profiles"][0]["pluginConfig"] = [
        {"name": "NodeResourcesFit", "args": fit},
        {"name": "NodeAffinity", "args": None},
        {"name": "Another", "args": {"anything": 1}},
    ]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"scheduler": scheduler, "berth": berth}))
    _, found = configuration(manifests.objects(manifests.template(f"--values={values}")))
    assert found.policies.overrides["night-batch"].mode == "off"


def test_a_release_of_another_name_and_place_is_whole():
    rendered = manifests.helm(
        "template", "second", manifests.CHART, "--namespace=batch",
        "--set=scheduler.profiles[0].schedulerName=batch",
    ).stdout  # fmt: skip
    found = manifests.objects(rendered)
    names = {one["metadata"]["name"].removesuffix("-config") for one in found}
    assert names == {
        "second-berth", "second-berth-lease", "second-berth-leader-election", "policies"
    }  # fmt: skip
    assert {one["metadata"].get("namespace", "batch") for one in found} == {"batch"}
    scheduler, berth = configuration(found)
    assert scheduler.profiles[0].scheduler_name == "batch"
    assert scheduler.leader_election.resource_name == "second-berth"
    assert scheduler.leader_election.resource_namespace == "batch"
    assert berth.policies.config_map == "batch/policies"


def test_two_releases_of_one_name_in_one_cluster_have_names_of_their_own():
    """As pipelines install, which name a release by its chart."""
    kinds = {"ClusterRole", "ClusterRoleBinding", "FlowSchema", "ValidatingWebhookConfiguration"}

    def names(*flags: str) -> set[tuple[str, str]]:
        found = manifests.objects(manifests.template(*EVERYTHING, *flags))
        return {(one["kind"], one["metadata"]["name"]) for one in found if one["kind"] in kinds}

    usual, own = names(), names("--set=fullnameOverride=batch-scheduler")
    assert {kind for kind, _ in usual} == kinds
    assert len(own) == len(usual)
    assert not own & usual


def test_what_is_said_of_pods_is_said_of_those_of_every_deployment():
    zone = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1"
    found = manifests.objects(manifests.template(*EVERYTHING, f"--set={zone}"))
    templates = [one["spec"]["template"] for one in found if one["kind"] == "Deployment"]
    assert len(templates) == 3
    for one in templates:
        [spread] = one["spec"]["topologySpreadConstraints"]
        own = spread["labelSelector"]["matchLabels"]
        assert own.items() <= one["metadata"]["labels"].items()
        assert sum(own.items() <= of["metadata"]["labels"].items() for of in templates) == 1
        assert "nodeAffinity" in one["spec"]["affinity"]
        [container] = one["spec"]["containers"]
        assert container["env"] == [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]


def test_a_chart_packaged_of_a_build_has_labels_and_a_tag(tmp_path):
    of = ("--version=0.1.0+g1", "--app-version=0.1.0+g2", f"--destination={tmp_path}")
    manifests.helm("package", manifests.CHART, *of)
    rendered = manifests.helm("template", "berth", tmp_path / "berth-0.1.0+g1.tgz").stdout
    [made] = [one for one in manifests.objects(rendered) if one["kind"] == "Deployment"]
    labels = made["metadata"]["labels"]
    assert labels["helm.sh/chart"] == "berth-0.1.0_g1"
    assert labels["app.kubernetes.io/version"] == "0.1.0_g2"
    [container] = made["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "berth:0.1.0_g2"


def test_an_account_that_is_there_is_taken():
    found = manifests.objects(
        manifests.template("--set=serviceAccount.create=false,serviceAccount.name=there")
    )
    assert not any(one["kind"] == "ServiceAccount" for one in found)
    specs = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert {one["serviceAccountName"] for one in specs} == {"there"}


def test_files_that_a_configuration_names_may_be_mounted(tmp_path):
    values = tmp_path / "values.yaml"
    volume = {"name": "prometheus", "secret": {"secretName": "prometheus"}}
    mount = {"name": "prometheus", "mountPath": "/etc/prometheus", "readOnly": True}
    values.write_text(yaml.safe_dump({"extraVolumes": [volume], "extraVolumeMounts": [mount]}))
    found = manifests.objects(manifests.template(*EVERYTHING, f"--values={values}"))
    specs = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in found
        if one["kind"] == "Deployment"
    }
    for name in ("berth", "berth-extender"):
        assert volume in specs[name]["volumes"]
        assert mount in specs[name]["containers"][0]["volumeMounts"]


def test_two_drains_at_once_do_not_take_all_extenders_and_ports_of_prometheus_may_be_none():
    found = manifests.objects(
        manifests.template(*EVERYTHING, "--set=networkPolicy.prometheusPorts=null")
    )
    budgets = {
        one["metadata"]["name"]: one["spec"]["selector"]["matchLabels"]
        for one in found
        if one["kind"] == "PodDisruptionBudget"
    }
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in found
        if one["kind"] == "Deployment"
    }
    for name in ("berth", "berth-extender"):
        assert budgets[name].items() <= pods[name].items()


def test_those_who_answer_do_so_until_nobody_is_sent_to_them():
    found = manifests.objects(manifests.template(*EVERYTHING))
    stops = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0].get("lifecycle")
        for one in found
        if one["kind"] == "Deployment"
    }
    waits = {"preStop": {"sleep": {"seconds": 5}}}
    assert stops == {"berth": None, "berth-webhook": waits, "berth-extender": waits}


def test_pods_that_are_not_ready_stop_no_drain():
    found = manifests.objects(manifests.template(*EVERYTHING))
    budgets = [one["spec"] for one in found if one["kind"] == "PodDisruptionBudget"]
    assert [one["unhealthyPodEvictionPolicy"] for one in budgets] == ["AlwaysAllow"] * 2


def test_openshift_may_choose_the_user_and_its_dns_and_its_prometheus_are_reached():
    found = manifests.objects(
        manifests.template(*EVERYTHING, "--set=serviceMonitor.tokenSecret=scraper")
    )
    for one in found:
        spec = one.get("spec", {})
        if one["kind"] == "Deployment":
            pod = spec["template"]["spec"]
            for said in (pod, *pod["containers"]):
                assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(said["securityContext"])
        if one["kind"] == "NetworkPolicy":
            assert {"port": 5353, "protocol": "UDP"} in spec["egress"][0]["ports"]
        if one["kind"] == "ServiceMonitor":
            [endpoint] = spec["endpoints"]
            assert endpoint["authorization"] == {"credentials": {"name": "scraper", "key": "token"}}
            assert "bearerTokenFile" not in endpoint


def test_alerts_are_about_the_schedulers_of_their_release_and_where_there_are_none_they_are_not():
    def rules(*flags: str) -> list[dict[str, Any]]:
        more = ("--namespace=batch", *manifests.MONITORED, *flags)
        rendered = manifests.helm("template", "second", manifests.CHART, *more).stdout
        return [one for one in manifests.objects(rendered) if one["kind"] == "PrometheusRule"]

    [found] = rules()
    asked = [one["expr"] for group in found["spec"]["groups"] for one in group["rules"]]
    for expression in asked:
        selected = re.findall(r"\{(.*?)\}", expression)
        assert selected
        assert all('job="berth", namespace=~"|batch"' in one for one in selected)
    assert not rules("--set=replicas=0")


@pytest.mark.parametrize(
    ("flags", "said", "unsaid"),
    [
        ([], ["deployment/berth\n", "edit configmap policies"], ["urlPrefix", "WARNING"]),
        (
            [
                "--set=replicas=0",
                "--set=extender.enabled=true",
                "--set=extender.certificateSecret=x",
            ],
            ["deployment/berth-extender\n", "urlPrefix: https://berth-extender.berth-system.svc\n"],
            ["spec.schedulerName", "berth status"],
        ),
        (
            ["--set=berth.policies.sources[0].configMap=berth-system/a"],
            ["berth status berth-system/berth"],
            ["edit configmap"],
        ),
        (
            ["--set=scheduler.profiles=null", r"--set=policies.files.a\.policy=mode: off"],
            ["spec.schedulerName: berth.", "until an upgrade writes policies.files anew"],
            [],
        ),
        (
            ["--set=scheduler.leaderElection.leaderElect=false"],
            ["WARNING: 2 replicas run without"],
            [],
        ),
    ],
)
def test_notes_say_what_is_there(flags, said, unsaid):
    place = ("--namespace=berth-system", "--dry-run=client")
    notes = manifests.helm("install", "berth", manifests.CHART, *place, *flags).stdout
    notes = notes.partition("NOTES:")[2]
    assert all(one in notes for one in said), notes
    assert not any(one in notes for one in unsaid), notes


def test_the_policies_of_a_fresh_install_come_into_force_without_a_warning():
    [there] = [
        one
        for one in manifests.objects(manifests.template())
        if "policies" in one["metadata"]["name"]
    ]
    found = new_compiler().compile({name: text.encode() for name, text in there["data"].items()})
    assert not found.diagnostics
    assert [one.mode for one in found.understood] == ["off"]


def test_who_installs_need_not_list_what_is_of_the_whole_cluster(control_plane, kubectl):
    """Names that others gave to their roles are nobody's business."""
    roles, verbs = "clusterroles.rbac.authorization.k8s.io", "create,get,patch,delete"
    kinds = f"{roles},clusterrolebindings.rbac.authorization.k8s.io"
    kinds += ",flowschemas.flowcontrol.apiserver.k8s.io"
    kubectl("create", "namespace", "taken")
    for name, *of in (("one", verbs, kinds), ("grants", "escalate,bind", roles)):
        kubectl("create", "clusterrole", name, f"--verb={of[0]}", f"--resource={of[1]}")
        kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", "--user=one")
    kubectl("create", "rolebinding", "ns", "--clusterrole=cluster-admin", "--user=one", "-ntaken")
    of = ("--namespace=taken", f"--kubeconfig={control_plane.kubeconfig_file()}")
    installed = manifests.helm("install", "taken", manifests.CHART, *of, "--kube-as-user=one")
    assert "spec.schedulerName: berth" in installed.stdout
    manifests.helm("uninstall", "taken", *of, "--kube-as-user=one")


def test_policies_that_were_edited_outlive_the_release_that_made_them(control_plane):
    """Whoever takes them out of the values, so that upgrades leave them alone, keeps them."""
    place = ("--namespace=kept", f"--kubeconfig={control_plane.kubeconfig_file()}")
    manifests.helm("install", "kept", manifests.CHART, "--create-namespace", *place)
    path = "/api/v1/namespaces/kept/configmaps/policies"
    edit = {"data": {"mine.policy": "# mine"}}
    assert control_plane.request("PATCH", path, edit)[0] == 200
    manifests.helm("upgrade", "kept", manifests.CHART, "--set=policies.create=false", *place)
    manifests.helm("uninstall", "kept", *place)
    status, kept = control_plane.request("GET", path)
    assert status == 200, kept
    assert kept["data"]["mine.policy"] == "# mine"


def test_an_edit_in_the_cluster_neither_stops_an_upgrade_nor_is_undone_by_it(control_plane):
    place = ("--namespace=edited", f"--kubeconfig={control_plane.kubeconfig_file()}")
    chart = ("edited", manifests.CHART)
    manifests.helm("install", *chart, "--create-namespace", *place)
    path = "/api/v1/namespaces/edited/configmaps/policies"
    mine = {"none.policy": "# mine"}
    assert control_plane.request("PATCH", path, {"data": mine})[0] == 200
    for change in ("--set=everyPolicy=true", "--set=replicas=3"):
        manifests.helm("upgrade", *chart, change, *place)
        assert control_plane.request("GET", path)[1]["data"] == mine
    manifests.helm("rollback", "edited", "2", *place)
    manifests.helm("uninstall", "edited", *place)
    manifests.helm("install", *chart, *place)
    assert control_plane.request("GET", path)[1]["data"] == mine
    of_values = r"--set=policies.files.a\.policy=# of the values"
    manifests.helm("upgrade", *chart, of_values, *place)
    with_both = control_plane.request("GET", path)[1]["data"]
    assert with_both == {**mine, "a.policy": "# of the values"}
    manifests.helm("uninstall", "edited", *place)


_DIGIT = pytest.mark.skipif(
    binaries.KUBERNETES.startswith("1.35."), reason="names of Services begin with a letter there"
)


@pytest.mark.parametrize(
    ("release", "namespace"),
    [("on", "123"), pytest.param("1e3", "null", marks=_DIGIT), ("v2.0", "no")],
)
def test_names_that_yaml_takes_for_something_else_are_names(release, namespace, control_plane):
    place = (f"--namespace={namespace}", f"--kubeconfig={control_plane.kubeconfig_file()}")
    values = (
        "--set=webhook.enabled=true,extender.enabled=true,policies.create=false",
        "--set-string=webhook.certificateSecret=1,extender.certificateSecret=true",
        "--set-string=policies.configMap=0x1f,serviceAccount.name=07,priorityClassName=off",
        "--set-string=berth.policies.tenants.configMap=yes,flowSchema.priorityLevel=12",
        "--set=berth.policies.tenants.namespaces[0]=team-*",
    )
    manifests.helm("install", release, manifests.CHART, "--create-namespace", *place, *values)
    manifests.helm("uninstall", release, *place)


@pytest.mark.parametrize(
    ("release", "value"),
    [
        ("older", "create=true"),
        ("replaced", "create=true"),
        ("mine", "create=false"),
        ("renamed", "configMap=rules"),
    ],
)
def test_an_upgrade_keeps_policies_that_are_not_marked_as_to_be_kept(release, value, control_plane):
    """An older chart did not mark them, and `kubectl replace` takes all marks away."""
    place = (f"--namespace={release}", f"--kubeconfig={control_plane.kubeconfig_file()}")
    manifests.helm("install", release, manifests.CHART, "--create-namespace", *place)
    path = f"/api/v1/namespaces/{release}/configmaps/policies"
    marks = {"annotations": {"helm.sh/resource-policy": None}}
    method, metadata = ("PATCH", marks) if release == "older" else ("PUT", {"name": "policies"})
    edit = {"metadata": metadata, "data": {"mine.policy": "# mine"}}
    assert control_plane.request(method, path, edit)[0] == 200
    for _ in range(2):
        manifests.helm("upgrade", release, manifests.CHART, f"--set=policies.{value}", *place)
        assert control_plane.request("GET", path)[1]["data"]["mine.policy"] == "# mine"
    manifests.helm("uninstall", release, *place)
    assert control_plane.request("GET", path)[0] == 200


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_an_overlay_has_all_that_is_needed_and_a_configuration_that_is_understood(name):
    found = manifests.objects(manifests.kustomize(name))
    assert {one["kind"] for one in found} >= KINDS_OF_BASE
    scheduler, berth = configuration(found)
    assert scheduler.leader_election.leader_elect
    assert scheduler.leader_election.resource_name == "berth"
    assert berth.policies.config_map == f"{manifests.NAMESPACE}/policies"
    deployments = [one for one in found if one["kind"] == "Deployment"]
    assert len(deployments) == 1 + (name == "overlays/webhook")
    for deployment in deployments:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"berth:{engine.__version__}"
        assert deployment["spec"]["replicas"] >= 2


def test_an_overlay_and_components_go_together_as_the_page_says(tmp_path):
    page = (manifests.ROOT / "docs/install.md").read_text("utf-8")
    [shown] = re.findall(r"\n\n((?:    \w+: \[.*\n)+)\n", page)
    shutil.copytree(manifests.KUSTOMIZE, tmp_path, dirs_exist_ok=True)
    mine = tmp_path / "overlays/mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(textwrap.dedent(shown))
    found = manifests.objects(manifests.kustomize(mine))
    made = [one for one in found if one["kind"] == "Deployment"]
    assert {one["metadata"]["name"]: one["spec"]["replicas"] for one in made} == {
        "berth": 3, "berth-webhook": 2
    }  # fmt: skip
    images = [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in made]
    assert images == [f"REGISTRY/berth:{engine.__version__}"] * 2
    assert {"ServiceMonitor", "ValidatingWebhookConfiguration"} <= {one["kind"] for one in found}
    assert configuration(found)[1].profiles["berth"].node_selector == {"berth.dev/pool": "berth"}


@pytest.mark.skipif(binaries.KUBERNETES.startswith("1.35."), reason="it came with 1.36")
def test_pods_of_labelled_namespaces_get_the_scheduler_by_the_policy_of_the_page(
    control_plane, kubectl, namespace
):
    page = (manifests.ROOT / "docs/install.md").read_text("utf-8")
    [shown] = re.findall(r"```yaml\n(.*?Mutating.*?)```", page, re.DOTALL)
    kubectl("label", "namespace", namespace, "scheduler=berth")
    kubectl("create", "serviceaccount", "default", f"--namespace={namespace}")
    kubectl("apply", "-f", "-", stdin=shown)
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    def asks(**spec) -> str:
        spec = {"containers": [{"name": "c", "image": "i"}], **spec}
        body = {"metadata": {"name": "p"}, "spec": spec}
        return control_plane.request("POST", path, body)[1]["spec"]["schedulerName"]

    try:
        wait_until("the policy is in force", lambda: asks() == "berth")
        assert asks(schedulerName="other") == "other"
    finally:
        kubectl("delete", "-f", "-", stdin=shown)


def configuration(found) -> tuple[SchedulerDocument, BerthDocument]:
    [text] = [one["data"]["config.yaml"] for one in found if "config.yaml" in one.get("data", {})]
    scheduler, berth = yaml.safe_load_all(text)
    scheduler = without_nulls(scheduler)
    return parse("config", SchedulerDocument, scheduler), parse("config", BerthDocument, berth)


# On a real API server, with the Prometheus operator's kinds.


@pytest.fixture(scope="module")
def operator(control_plane, kubectl):
    """The kinds of the Prometheus operator are there."""
    folder = binaries.module("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
    for plural in ("servicemonitors", "prometheusrules"):
        path = folder / f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml"
        kubectl("apply", "--server-side", "-f", str(path))
        kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com")


@pytest.fixture(scope="module")
def schemas(control_plane, operator, tmp_path_factory) -> Path:
    """The API server's own schemas as kubeconform reads them; unknown fields are refused."""
    folder = tmp_path_factory.mktemp("schemas")

    def published() -> dict[str, Any]:
        _, found = control_plane.request("GET", "/openapi/v2")
        return found["definitions"]  # type: ignore[no-any-return]  # it is JSON

    wanted = "com.coreos.monitoring.v1.PrometheusRule"
    wait_until("the API server publishes the operator's kinds", lambda: wanted in published())
    definitions = published()
    for one in definitions.values():
        if "properties" in one:
            one.setdefault("additionalProperties", False)
        one.pop("format", None) if one.get("format") == "int-or-string" else None
    either = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = either
    (folder / "all.json").write_text(json.dumps({"definitions": definitions}))
    for name, one in definitions.items():
        for kind in one.get("x-kubernetes-group-version-kind", ()):
            # kubeconform has the version of core kinds for their group.
            of = f"{kind['kind']}-{kind['group'] or kind['version']}-{kind['version']}"
            (folder / f"{of.lower()}.json").write_text(
                json.dumps({"$ref": f"file://{folder}/all.json#/definitions/{name}"})
            )
    return folder


@pytest.mark.parametrize("name", ["chart", "chart with everything", "base", *OVERLAYS])
def test_every_object_is_what_the_api_server_knows(name, schemas, control_plane, kubectl):
    rendered = {
        "chart": manifests.template,
        "chart with everything": lambda: manifests.template(*EVERYTHING),
    }.get(name, lambda: manifests.kustomize(name))()
    where = f"{schemas}/{{{{.ResourceKind}}}}-{{{{.Group}}}}-{{{{.ResourceAPIVersion}}}}.json"
    done = subprocess.run(
        [binaries.binary("kubeconform"), "-summary", "-strict", f"-schema-location={where}", "-"],
        input=rendered, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "Skipped: 0" in done.stdout
    control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": manifests.NAMESPACE}})
    kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)


@pytest.mark.parametrize("name", ["base", *OVERLAYS])
def test_its_pods_are_let_into_a_restricted_namespace(name, control_plane):
    found = manifests.objects(manifests.kustomize(name))
    [own] = [one for one in found if one["kind"] == "Namespace"]
    labels = own["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    own = {"metadata": {"name": "restricted", "labels": labels}}
    control_plane.request("POST", "/api/v1/namespaces", own)
    path = "/api/v1/namespaces/restricted/pods?dryRun=All"
    made = {}
    for one in found:
        if one["kind"] == "Deployment":
            made = {"metadata": {"name": "berth"}, "spec": one["spec"]["template"]["spec"]}
            status, answer = control_plane.request("POST", path, made)
            assert status == 201, answer
    made["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    status, answer = control_plane.request("POST", path, made)
    assert status == 403, "the test can fail"
