"""Configuration files and flags: what is taken, and the one line that says what is not."""

from __future__ import annotations

import contextlib
import textwrap

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.settings import with_flags
from engine.configuration.berth import BERTH_API, BerthDocument
from engine.configuration.forms import seconds
from engine.configuration.scheduler import SCHEDULER_API, LeaderElection, ProfileDocument
from engine.configuration.settings import ConfigError, Settings, load, parse
from engine.text.documents import Dumper, Loader

STOCK = f"apiVersion: {SCHEDULER_API}\nkind: KubeSchedulerConfiguration\n"
BERTH = f"apiVersion: {BERTH_API}\nkind: BerthConfiguration\n"
NO_FLAGS = {
    "kubeconfig": None,
    "policies": None,
    "policy_configmap": None,
    "scheduler_name": None,
    "prometheus_url": None,
}


@pytest.fixture
def load_text(tmp_path):
    def load_it(text):
        path = tmp_path / "berth.yaml"
        path.write_text(text, "utf-8")
        return load(str(path))

    return load_it


@pytest.fixture
def refused(tmp_path, load_text):
    """What is said of a file, without its name."""

    def say(text):
        with pytest.raises(ConfigError) as error:
            load_text(text)
        message = str(error.value)
        path = str(tmp_path / "berth.yaml")
        assert "\n" not in message
        assert message.startswith(path)
        return message.removeprefix(path).removeprefix(": ")

    return say


# ---- good files ----------------------------------------------------------------------------------


def test_without_a_file_everything_has_its_default():
    settings = load(None)
    assert settings == Settings(election=LeaderElection())
    assert settings.scheduler_name == "berth"
    assert settings.berth.time_zone == "UTC"
    assert (settings.initial_backoff_seconds, settings.max_backoff_seconds) == (1.0, 10.0)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "--- null\n"])
def test_an_empty_file_is_a_file(text, load_text):
    assert load_text(text) == load(None) == Settings(election=LeaderElection())


def test_a_stock_configuration(load_text):
    settings = load_text(
        STOCK
        + textwrap.dedent("""\
            clientConnection:
              kubeconfig: /etc/kubeconfig
            podInitialBackoffSeconds: 2
            podMaxBackoffSeconds: 20
            profiles:
            - schedulerName: mine
            """)
    )
    assert settings.scheduler_name == "mine"
    assert settings.kubeconfig == "/etc/kubeconfig"
    assert (settings.initial_backoff_seconds, settings.max_backoff_seconds) == (2.0, 20.0)
    assert settings.berth == BerthDocument()


def test_a_profile_without_a_name_is_the_stock_schedulers(load_text):
    assert load_text(STOCK + "profiles: [{}]\n").scheduler_name == "default-scheduler"
    assert load_text(STOCK).scheduler_name == "berth"


ALL = BERTH + textwrap.dedent("""\
    policies:
      configMap: berth-system/policies
      overrides:
        network:
          params: {device: eth1, range: 5m, spaces: [prod, test], most: 3, share: 0.5, quick: true}
          weight: 2.5
          order: -10
          mode: off
    metrics:
      errors:
        promql: "sum by (node) (rate(errors[5m]))"
        by: node
        every: 1m30s
        stale: 5min
        default: -1
        unit: bytes/s
    prometheus:
      url: http://prometheus:9090
      timeoutSeconds: 2.5
    timeZone: Europe/Berlin
    gpuResources: [example.com/gpu]
    seed: 7
    """)


def test_a_berth_configuration(load_text):
    berth = load_text(ALL).berth
    assert berth.policies.config_map == "berth-system/policies"
    network = berth.policies.overrides["network"]
    assert network.params == {
        "device": "eth1",
        "range": "5m",
        "spaces": ["prod", "test"],
        "most": 3,
        "share": 0.5,
        "quick": True,
    }
    assert (network.weight, network.order, network.mode) == (2.5, -10, "off")
    errors = berth.metrics["errors"]
    assert (errors.by, errors.every, errors.stale) == ("node", "1m30s", "5min")
    assert (errors.default, errors.unit) == (-1, "bytes/s")
    assert berth.prometheus.url == "http://prometheus:9090"
    assert berth.prometheus.timeout_seconds == 2.5
    assert (berth.time_zone, berth.gpu_resources, berth.seed) == (
        "Europe/Berlin",
        ["example.com/gpu"],
        7,
    )


def test_two_documents_in_any_order(load_text):
    stock = STOCK + "profiles: [{schedulerName: mine}]\n"
    berth = BERTH + "seed: 3\n"
    for text in (f"{stock}---\n{berth}", f"---\n{berth}---\n{stock}---\n"):
        settings = load_text(text)
        assert (settings.scheduler_name, settings.berth.seed) == ("mine", 3)


def test_settings_survive_a_journal(load_text):
    profiles = "profiles: [{schedulerName: a, plugins: {filter: {}}}, {schedulerName: b}]\n"
    settings = load_text(f"{STOCK}leaderElection: {{leaderElect: false}}\n{profiles}---\n{ALL}")
    assert [one.scheduler_name for one in settings.profiles] == ["a", "b"]
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ("parallelism: 16", []),
        ("parallelism: 3", ["parallelism: 3"]),
        ("percentageOfNodesToScore: 0", []),
        ("percentageOfNodesToScore: 50", ["percentageOfNodesToScore: 50"]),
        ("profiles: [{percentageOfNodesToScore: 5}]", ["profiles.0.percentageOfNodesToScore: 5"]),
        ("clientConnection: {qps: 50, burst: 100, contentType: ''}", []),
        ("clientConnection: {qps: -1}", ["clientConnection.qps: -1.0"]),
        ("clientConnection: {qps: 5, burst: 7}", ["clientConnection.qps: 5.0",
                                                  "clientConnection.burst: 7"]),
        ("leaderElection: {leaseDuration: 20s, resourceLock: leases}", []),
        ("enableProfiling: false", ["enableProfiling: False"]),
        ("leaderElection: {retryPeriod: 1.5s}\nclientConnection:\nprofiles:", []),
    ],
)  # fmt: skip
def test_what_changes_nothing_yet_is_told_once(line, notes, load_text):
    told = [f"{note} has no effect in this version" for note in notes]
    assert list(load_text(f"{STOCK}{line}\n").notes) == told


def test_fractions_of_seconds_count_and_null_is_as_if_it_was_not_there(load_text):
    made = load_text(f"{STOCK}leaderElection: {{retryPeriod: 1.5s, leaseDuration: null}}\n")
    assert seconds(made.election.retry_period) == 1.5
    assert made.election.lease_duration == "15s"


def test_what_is_empty_or_no_time_of_the_election_is_by_default_as_go_writes_it(load_text):
    made = load_text(
        f"{STOCK}leaderElection: {{leaderElect: false, leaseDuration: 0s, renewDeadline: 0s,"
        " retryPeriod: '0', resourceLock: '', resourceName: '', resourceNamespace: ''}\n"
    )
    assert made.election == LeaderElection(leader_elect=False)


def test_an_empty_kubeconfig_is_none_as_a_written_configuration_has_it(load_text):
    assert load_text(f"{STOCK}clientConnection: {{kubeconfig: ''}}\n").kubeconfig is None


def test_scalars_are_what_they_are_to_kube_scheduler(load_text):
    made = load_text(
        f"{STOCK}podMaxBackoffSeconds: 1e3\nenableProfiling: yes\nprofiles: [null]\n"
        f"---\n{BERTH}profiles: {{default-scheduler: {{nodeSelector: {{since: 2024-01-01}}}}}}\n"
    )
    assert made.max_backoff_seconds == 1000
    assert made.profiles == (ProfileDocument(),)
    selector = made.berth.profiles["default-scheduler"].node_selector
    assert selector == {"since": "2024-01-01"}


def test_what_is_written_is_the_same_to_whoever_reads_it():
    texts = [
        "y",
        "1e3",
        "08",
        "0o7",
        "60:30",
        "2024-01-01",
        "yes",
        "=",
        "<<",
        "~",
        "",
        "a",
        "n/a",
        "._",
        "0x_",
    ]
    given = [*texts, 8, -3, 1.5, True, None]
    text = yaml.dump(given, Dumper=Dumper)
    assert yaml.load(text, Loader) == yaml.safe_load(text) == given
    for one in texts[:2]:
        assert f"'{one}'" in text, "as Go reads no text there"


# ---- what is not understood ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("polices: {}", "polices: this field is unknown, or not in this version yet"),
        ("policies: {folder: x}", "policies.folder: this field is unknown, or not in this version"),
        ("policies: [a]", "policies: expected fields"),
        ("policies: {dir: a, configMap: b/c}", "policies: dir, configMap and sources exclude"),
        ("policies: {sources: [{dir: a, configMap: b/c}]}", "policies.sources.0: a source is one"),
        ("policies: {sources: [{selector: a=b}]}", "policies.sources.0: selector and namespace"),
        ("policies: {sources: [{dir: a/x}, {dir: b/x}]}", "policies: two sources are named 'x'"),
        ("policies: {guard: {pending: 0}}", "policies.guard.pending: "),
        ("policies: {guard: {within: 1m}}", "policies.guard: it checks nothing; give pending,"),
        ("policies: {dir: ''}", "policies.dir: must not be empty"),
        ("policies: {configMap: rules}", "policies.configMap: 'rules' names no ConfigMap; write"),
        ("policies: {configMap: a/b/c}", "policies.configMap: 'a/b/c' names no ConfigMap"),
        ("policies: {overrides: {p: {weight: 0}}}",
         "policies.overrides.p.weight: must be greater than 0"),
        ("policies: {overrides: {p: {weight: .nan}}}",
         "policies.overrides.p.weight: must be"),
        ("policies: {overrides: {p: {mode: shaded}}}",
         "policies.overrides.p.mode: must be enforce, shadow, off, or canary and a share such as"),
        ("policies: {overrides: {p: {params: {since: {a: 1}}}}}",
         "policies.overrides.p.params.since: must be a string, a number, true, false or a list"),
        ("policies: {overrides: {p: {params: {a: [1, 2]}}}}",
         "policies.overrides.p.params.a: must be a string"),
        ("policies: {overrides: {1: {}}}",
         "policies.overrides.1: must be a string; write a number, true or false in quotes"),
        ("metrics: {m: {}}", "metrics.m.promql: this field is required"),
        ("metrics: {m: {promql: up, every: 5}}", "metrics.m.every: '5' is not a duration above 0;"),
        ("metrics: {m: {promql: ''}}", "metrics.m.promql: must not be empty"),
        ("metrics: {m: {promql: up, unit: apples}}",
         "metrics.m.unit: 'apples' is not a unit; write"),
        ("metrics: {m: {promql: up, every: 5m, stale: 1m}}",
         "metrics.m: stale 1m is shorter than every 5m: it would go missing in between; write"),
        ("metrics: {m: {promql: up, every: 5x}}",
         "metrics.m.every: '5x' is not a duration above 0;"),
        ("metrics: {m: {promql: up, every: 0s}}",
         "metrics.m.every: '0s' is not a duration above 0;"),
        ("metrics: {m: {promql: up, stale: -1m}}", "metrics.m.stale: '-1m' is not a duration"),
        ("metrics: {m: {promql: up, unit: bytes/m}}", "metrics.m.unit: 'bytes/m' is not a unit;"),
        ("metrics: {m: {promql: up, by: a.b}}", "metrics.m.by: 'a.b' is not a label of a result;"),
        ('metrics: {m: {promql: up, by: "a, b, c"}}', "metrics.m.by: 'a, b, c' is not a label"),
        ("metrics: {m: {promql: up, default: .nan}}", "metrics.m.default: must be a finite"),
        ("prometheus: {url: 'prometheus'}", "prometheus.url: 'prometheus' is not an address"),
        ("prometheus: {url: 'http://h:99999'}",
         "prometheus.url: 'http://h:99999' is not an address"),
        ("prometheus: {url: 'h:99999'}", "prometheus.url: 'h:99999' is not an address"),
        ("prometheus: {url: 'http://[::1:9090'}", "prometheus.url: 'http://[::1:9090' is no"),
        ("prometheus: {caFile: f, insecureSkipVerify: true}",
         "prometheus: insecureSkipVerify and caFile exclude each other; give one"),
        ("prometheus: {username: u}", "prometheus: username and passwordFile belong together"),
        ("prometheus: {username: u, passwordFile: p, tokenFile: t}",
          "prometheus: tokenFile and username exclude each other; give one"),
        ("prometheus: {headers: {'X Scope': t}}",
         "prometheus.headers.X Scope: 'X Scope' cannot be set (tokenFile is for"),
        ("prometheus: {headers: {authorization: Bearer t}}",
         "prometheus.headers.authorization: 'authorization' cannot be set (tokenFile"),
        ("prometheus: {headers: {Content-Length: '5'}}",
         "prometheus.headers.Content-Length: 'Content-Length' cannot be set"),
        ('prometheus: {headers: {X-A: "a\\nb"}}', "prometheus.headers.X-A: 'a\\nb' is not a line"),
        ("prometheus: {timeoutSeconds: 0}", "prometheus.timeoutSeconds: must be greater than 0"),
        ("timeZone: Mars/Olympus", "timeZone: no time zone is called 'Mars/Olympus'; write one"),
        ("timeZone: ../../etc/passwd", "timeZone: no time zone is called '../../etc/passwd'"),
        ("timeZone: America", "timeZone: no time zone is called 'America'"),
        ("timeZone: ''", "timeZone: no time zone is called ''"),
        ("seed: many", "seed: must be a valid integer"),
        ("gpuResources: nvidia", "gpuResources: must be a valid list"),
        ("prometheus: http://p", "prometheus: expected fields; known: url, timeoutSeconds,"),
        ("metrics: {m: up}", "metrics.m: expected fields; known: promql, by, every,"),
        ("policies: {sources: [a/b]}", "policies.sources.0: expected fields; known: configMap,"),
        ("metrics: {m: {query: up}}",
         "metrics.m.query: this field is unknown, or not in this version yet; known: promql,"),
        ("policies: {guard: 5m}", "policies.guard: expected fields; known: within, pending"),
        ("policies: {guard: {pendin: 5}}",
         "policies.guard.pendin: this field is unknown, or not in this version yet; did you mean"),
        ("prometheus: {URL: p}",
         "prometheus.URL: this field is unknown, or not in this version yet; did you mean url?"),
        ("policies: {overrides: {p: {params: [a]}}}",
         "policies.overrides.p.params: must be fields, NAME: VALUE"),
        ("seed: 1\nseed: 2", "4: is not YAML: 'seed' is there twice"),
        ("seed: [1", "4: is not YAML: "),
        ("- 1", "3: is not YAML: "),
        ("seed: \x01", "is not YAML: "),
        ("seed: " + "[" * 5000, "is not YAML: maximum recursion depth"),
        ("? {a: b}\n: c", "3: is not YAML: found unhashable key"),
    ],
)  # fmt: skip
def test_one_line_says_where_and_what(line, said, refused):
    assert refused(f"{BERTH}{line}\n").removeprefix(":").startswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("leaderElections: {}", "leaderElections: this field is unknown"),
        (
            "profiles: [{plugins: {placementScore: {enabled: [{name: NodeResourcesFit}]}}}]",
            "profiles.0.plugins.placementScore: Berth has no plugins for groups of pods: its own",
        ),
        (
            "leaderElection: {leaseDuraton: 0s}",
            "leaderElection.leaseDuraton: this field is unknown",
        ),
        ("leaderElection: {resourceNam: ''}", "leaderElection.resourceNam: this field is unknown"),
        (
            "leaderElection: {leaseDuration: ''}",
            "leaderElection.leaseDuration: '' is not a duration",
        ),
        ("leaderElection: {leaderElect: ''}", "leaderElection.leaderElect: must be a valid bool"),
        ("leaderElection: {leaseDuration: 1d}", "leaderElection.leaseDuration: '1d' has a unit"),
        ("podMaxBackoffSeconds: 60:30", "podMaxBackoffSeconds: must be a valid integer"),
        ("leaderElection: {leaderElect: 1s}", "leaderElection.leaderElect: must be a valid bool"),
        (
            "leaderElection: {leaseDuration: 10s}",
            "leaderElection: leaseDuration 10s must be longer than renewDeadline 10s",
        ),
        (
            "leaderElection: {renewDeadline: 2s}",
            "leaderElection: renewDeadline 2s must be longer than 1.2 times retryPeriod 2s",
        ),
        (
            "leaderElection: {leaseDuration: 10500ms}",
            "leaderElection: leaseDuration 10500ms must be in whole seconds",
        ),
        (
            "leaderElection: {resourceLock: endpoints}",
            "leaderElection.resourceLock: must be 'leases'",
        ),
        ("clientConnection: {burst: -1}", "clientConnection.burst: must be greater than or equal"),
        ("extenders: [{urlPrefix: x}]", "extenders.0.urlPrefix: 'x' is not a URL"),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: must be greater than 0"),
        ("podInitialBackoffSeconds: 11", "podMaxBackoffSeconds is less than podInitialBackoff"),
        ("profiles: [{schedulerName: a}, {}]", "profiles: number 1 needs a schedulerName"),
        (
            "profiles: [{schedulerName: a}, {schedulerName: a}]",
            "profiles: two have the schedulerName 'a'",
        ),
        (
            "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {disabled:"
            " [{name: PrioritySort}]}}}]",
            "profiles: queueSort and its arguments must be the same for all, and a and b differ",
        ),
        (
            "profiles: [{plugins: {filter: {enabled: [{nam: NodeName}]}}}]",
            "profiles.0.plugins.filter.enabled.0.nam: this field is unknown, or not in this version"
            " yet; did you mean name?",
        ),
        (
            "parallelisms: 1",
            "parallelisms: this field is unknown, or not in this version yet; did"
            " you mean parallelism?",
        ),
        ("parallelism: '3'", "parallelism: must be a valid integer"),
        ("leaderElection: {leaderElect: 'no'}", "leaderElection.leaderElect: must be a valid bool"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: must be less than or equal"),
        ("profiles: [{schedulerName: ''}]", "profiles.0.schedulerName: must not be empty"),
        (
            "profiles: [{plugins: {filters: {}}}]",
            "profiles.0.plugins.filters: this field is unknown, or not in this version yet; did you"
            " mean filter or preFilter?",
        ),
    ],
)
def test_the_stock_part_is_read_as_strictly(line, said, refused):
    assert refused(f"{STOCK}{line}\n").startswith(said)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind: Pod\n", "found kind 'Pod'"),
        ("just text\n", "found no kind"),
        ("[1, 2]\n", "found no kind"),
        (f"{BERTH}---\n{BERTH}", "found kind 'BerthConfiguration'"),
        (f"{STOCK}---\n{STOCK}", "found kind 'KubeSchedulerConfiguration'"),
    ],
)
def test_other_documents_are_refused(text, found, refused):
    said = refused(text)
    assert said.startswith("expected at most one document of kind KubeSchedulerConfiguration")
    assert said.endswith(found)


def test_other_versions_are_refused(refused):
    said = refused("apiVersion: berth.dev/v2\nkind: BerthConfiguration\n")
    assert said == "apiVersion: must be 'berth.dev/v1'"
    said = refused(STOCK.replace("/v1", "/v1beta3"))
    assert said == f"apiVersion: must be '{SCHEDULER_API}'; `berth convert FILE` rewrites it"


def test_a_file_that_cannot_be_read(tmp_path):
    missing = tmp_path / "missing.yaml"
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load(str(missing))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(str(tmp_path))
    with pytest.raises(ConfigError, match="/dev/zero: cannot be read: it is longer than 1 MiB"):
        load("/dev/zero")
    missing.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read: it is not UTF-8"):
        load(str(missing))


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["policies", "dir", "overrides", "metrics", "m", "promql", "every", "x"]),
        inner,
        max_size=4,
    ),
    max_leaves=10,
))  # fmt: skip
def test_whatever_is_written_is_taken_or_refused(document):
    with contextlib.suppress(ConfigError):
        parse("f", BerthDocument, document)


# ---- flags ---------------------------------------------------------------------------------------


def flags(settings=None, **given):
    return with_flags(settings or Settings(), {**NO_FLAGS, **given})


def test_without_flags_the_file_holds(load_text):
    settings = load_text(ALL)
    assert flags(settings) == settings


def test_flags_win_over_the_file(load_text):
    settings = flags(
        load_text(ALL), policies="rules", scheduler_name="theirs", prometheus_url="https://metrics"
    )
    assert settings.scheduler_name == "theirs"
    assert (settings.berth.policies.dir, settings.berth.policies.config_map) == ("rules", None)
    assert settings.berth.prometheus.url == "https://metrics"
    assert settings.berth.prometheus.timeout_seconds == 2.5
    assert "network" in settings.berth.policies.overrides, "what else the file says stays"
    assert settings.berth.seed == 7
    back = flags(settings, policy_configmap="a/b")
    assert (back.berth.policies.dir, back.berth.policies.config_map) == (None, "a/b")


def test_a_leader_is_elected_unless_it_is_said_otherwise(load_text):
    assert load(None).election.leader_elect
    assert load_text(ALL).election.leader_elect
    assert load_text(STOCK).election == LeaderElection(), "with a name of our own"
    off = load_text(f"{STOCK}leaderElection: {{leaderElect: false}}\n")
    assert not off.election.leader_elect
    assert flags(off, leader_elect=True).election.leader_elect
    assert not flags(load(None), leader_elect=False).election.leader_elect
    assert load_text(f"{STOCK}delayCacheUntilActive: true\n").delay_cache


def test_flags_of_the_election_win_over_the_file(load_text):
    file = load_text(f"{STOCK}leaderElection: {{leaseDuration: 1m30s, retryPeriod: 500ms}}\n")
    both = flags(file, leader_elect_resource_name="other", leader_elect_renew_deadline="20s")
    election = both.election
    assert (election.resource_name, election.resource_namespace) == ("other", "kube-system")
    periods = (election.lease_duration, election.renew_deadline, election.retry_period)
    assert tuple(map(seconds, periods)) == (90, 20, 0.5)
    with pytest.raises(ConfigError, match=r"^--leader-elect: leaseDuration 1m30s must be longer"):
        flags(file, leader_elect_renew_deadline="2m")


def test_the_name_is_of_the_only_profile(load_text):
    several = load_text(f"{STOCK}profiles: [{{schedulerName: a}}, {{schedulerName: b}}]\n")
    with pytest.raises(ConfigError, match="the file has several"):
        flags(several, scheduler_name="c")


def test_prometheus_by_host_and_port():
    settings = flags(load(None), prometheus_url="prometheus.kube-system:9090")
    assert settings.berth.prometheus.url == "http://prometheus.kube-system:9090"


def test_a_password_in_an_address_is_in_no_dump(load_text):
    settings = load_text(f"{BERTH}prometheus: {{url: 'https://me:s3cret@prom:9090/a@b'}}\n")
    assert "s3cret@prom" in settings.berth.prometheus.url
    assert "s3cret" not in settings.model_dump_json()
    assert settings.berth.prometheus.model_dump()["url"] == "https://prom:9090/a@b"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{dir: x, profiles: [batch, bert]}",
         "policies.sources.0.profiles: no profile is called 'batch'"),
        ("{dir: x, profiles: [bert]}",
         "policies.sources.0.profiles: no profile is called 'bert'; did you mean berth?"),
        ("{selector: 'team in (a', namespace: n}",
         "policies.sources.0.selector: unable to parse requirement: found ''"),
    ],
)  # fmt: skip
def test_sources_that_can_have_no_policy(source, said, load_text):
    settings = load_text(f"{BERTH}policies: {{sources: [{source}]}}\n")
    with pytest.raises(ConfigError) as error:
        flags(settings)
    assert str(error.value).startswith(said)


def test_a_source_may_be_for_a_profile_that_a_flag_names(load_text):
    settings = load_text(f"{BERTH}policies: {{sources: [{{dir: x, profiles: [batch]}}]}}\n")
    assert flags(settings, scheduler_name="batch").scheduler_name == "batch"
