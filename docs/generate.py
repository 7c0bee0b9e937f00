"""Writes the pages of the documentation that follow from the code: `make docs`.

settings.md is made from the declarations in `penstock.settings`, apis.md from the handlers of the broker, metrics.md
from the families it declares, cli.md from the tree of commands, errors.md from the error codes that the packages of a
node name in their source, with the advice of errors.toml. The pictures are drawn, too. A test compares all with what is
checked in.
"""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.broker.apis import BROKER_APIS
from penstock.broker.metrics.families import FAMILIES, Family
from penstock.broker.net.router import key_of
from penstock.cli import server
from penstock.cli.app import application
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API
from penstock.settings.acls import AclSettings
from penstock.settings.definition import Scope, Setting, settings_of
from penstock.settings.group_config import GROUP_SETTINGS
from penstock.settings.groups import GroupSettings
from penstock.settings.logs import LogSettings
from penstock.settings.network import NetworkSettings
from penstock.settings.node import BROKER_SETTINGS
from penstock.settings.observability import ObservabilitySettings
from penstock.settings.quorum import QuorumSettings
from penstock.settings.quotas import QuotaSettings
from penstock.settings.replication import ReplicationSettings
from penstock.settings.sasl import SaslSettings
from penstock.settings.shares import ShareSettings
from penstock.settings.streams import StreamsSettings
from penstock.settings.tls import TlsSettings
from penstock.settings.topic import TOPIC_SETTINGS
from penstock.settings.transactions import TransactionSettings

HERE = Path(__file__).parent
NOTICE = "<!-- Generated from the code by `make docs`; edit the declarations instead. -->"

NODE_SECTIONS = (
    ("Roles, identity and the metadata quorum", QuorumSettings),
    ("Sockets", NetworkSettings),
    ("TLS", TlsSettings),
    ("SASL and delegation tokens", SaslSettings),
    ("Authorization", AclSettings),
    ("Logs", LogSettings),
    ("Replication", ReplicationSettings),
    ("Share groups", ShareSettings),
    ("Streams groups", StreamsSettings),
    ("Groups", GroupSettings),
    ("Transactions", TransactionSettings),
    ("Quotas of clients", QuotaSettings),
    ("Metrics and the node's own log", ObservabilitySettings),
)
SCOPES = {
    Scope.READ_ONLY: "at start",
    Scope.PER_BROKER: "for one broker",
    Scope.CLUSTER_WIDE: "for one broker or all",
}


def settings_page() -> str:
    lines = [
        NOTICE,
        "",
        "# Settings",
        "",
        "Names, types and defaults are Kafka's. A node reads them from its `server.properties`. You can change some",
        "settings while the node runs: use any Kafka client or, for topics, `penstock topics alter`.",
        "",
        "## Topics",
        "",
        "Set them when you create a topic, or later. The default is that of the broker setting in the last column.",
        "",
        "| setting | type | default | what it does | broker setting |",
        "|---|---|---|---|---|",
    ]
    for setting in sorted(TOPIC_SETTINGS.values(), key=lambda setting: setting.name):
        if not setting.internal:
            synonym = f"`{setting.synonyms[0][0]}`" if setting.synonyms else ""
            lines.append(f"{_row(setting)} {synonym} |")
    lines += [
        "",
        "## Groups",
        "",
        "Set them for one group with any Kafka client, whether the group exists or not, and within the bounds of the",
        "brokers (`group.consumer.min...`, `group.share.max...`). Members receive them with their next heartbeat.",
        "",
        "| setting | type | default | what it does | broker setting |",
        "|---|---|---|---|---|",
    ]
    for setting in sorted(GROUP_SETTINGS.values(), key=lambda setting: setting.name):
        synonym = f"`{setting.synonyms[0][0]}`" if setting.synonyms else ""
        lines.append(f"{_row(setting)} {synonym} |")
    declared: set[str] = set()
    for title, cls in NODE_SECTIONS:
        lines += _section(title, [setting for name, setting in settings_of(cls).items() if name not in declared])
        declared |= settings_of(cls).keys()
    defaults = [setting for name, setting in BROKER_SETTINGS.items() if name not in declared]
    lines += _section("Defaults of topic settings", defaults)
    return "\n".join(lines) + "\n"


def _section(title: str, settings: list[Setting]) -> list[str]:
    lines = [
        "",
        f"## {title}",
        "",
        "| setting | type | default | what it does | can be changed |",
        "|---|---|---|---|---|",
    ]
    shown = sorted((setting for setting in settings if not setting.internal), key=lambda setting: setting.name)
    return lines + [f"{_row(setting)} {SCOPES[setting.scope]} |" for setting in shown]


def _row(setting: Setting) -> str:
    default = "*required*" if setting.required else f"`{text}`" if (text := setting.format(setting.default)) else ""
    documentation = setting.documentation.replace("|", "\\|")
    return f"| `{setting.name}` | {setting.type.name.lower()} | {default} | {documentation} |"


def apis_page() -> str:
    served = {int(key_of(module)): module.VERSIONS for module in BROKER_APIS}
    lines = [
        NOTICE,
        "",
        "# APIs",
        "",
        "What a broker serves, and says in ApiVersions that it serves. Clients choose the highest version both know.",
        "The last column has the versions of Apache Kafka 4.4.",
        "",
        "| key | API | Penstock | Kafka 4.4 |",
        "|---:|---|---|---|",
    ]
    for key, versions in sorted(served.items()):
        kafka = (API[key].min_version, API[key].max_version)
        lines.append(f"| {key} | {API[key].name} | {_versions(versions)} | {_versions(kafka)} |")
    lines += [
        "",
        "InitProducerId 6 (two-phase commit, KIP-939) is served, and known to clients, where",
        "`transaction.two.phase.commit.enable` is set. Apache Kafka 4.4 calls that version unstable.",
        "",
        "DescribeAcls, CreateAcls and DeleteAcls answer SECURITY_DISABLED without an authorizer, as in Kafka.",
        "StreamsGroupTopologyDescriptionUpdate answers UNSUPPORTED_VERSION, as Kafka does without a plug-in that",
        "stores descriptions of topologies (KIP-1331).",
    ]
    missing = [spec.name for key, spec in sorted(API.items()) if key not in served and "broker" in spec.listeners]
    assert not missing, f"not served: {missing}"
    lines += ["", "[Limits](limits.md) says what else differs."]
    return "\n".join(lines) + "\n"


def _versions(versions: tuple[int, int]) -> str:
    low, high = versions
    return f"{low} to {high}" if low != high else f"{low}"


METRICS_INTRODUCTION = """\
# Metrics

Every node, whether broker or controller, serves metrics for Prometheus on the address in `penstock.metrics.listener`:

```properties
penstock.metrics.listener=:9404
```

Without this setting, the node serves no metrics. `penstock up` sets it to a port 1000 above the broker's port, if that
is free: a cluster on 9092 serves its metrics at `http://127.0.0.1:10092/metrics`. Each node's `server.properties` has
the address. Configure Prometheus with the addresses of all nodes:

```yaml
scrape_configs:
  - job_name: penstock
    static_configs:
      - targets: [broker-1:9404, broker-2:9404, broker-3:9404, controller-1:9404]
```

[grafana/penstock.json](grafana/penstock.json) is a dashboard for all metrics on this page: import it in Grafana and
select your Prometheus data source. If you use neither, run `penstock top`. It reads the same metrics from all brokers.
Where there are no metrics, it shows what it can compute from offsets:

```console
$ seq 1000 | penstock produce numbers
$ penstock top --once
cluster ...  1 of 1 brokers  1 topics, 1 partitions  controller 1, epoch ...
all partitions in sync

BROKER  ADDRESS ... STATE  LEADS  IN SYNC ... IN/s ... OUT/s  REQUESTS/s  CONNECTIONS ... MEMORY
1       127.0.0.1:... up         1 ... 1/1 ...
TOPIC    PARTITIONS  REPLICAS  RECORDS/s ...
numbers           1         1 ... 1000
```

The metrics have the names that Kafka's metrics have behind Prometheus' JMX exporter. Group metrics have the names of
kafka_exporter. So dashboards and alerts for Kafka find them. Metrics that only Penstock has begin with `penstock_`.
Metrics per topic have no total over all topics: use `sum(rate(...))`. Counters start at 0 when a node starts.

Set alerts on these expressions. [prometheus/penstock-alerts.yml](prometheus/penstock-alerts.yml) has them as rules to
load in Prometheus, together with those for [pipelines](pipelines-operating.md#metrics):

| expression | meaning |
|---|---|
| `max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0` | partitions have no leader and cannot be used |
| `sum(kafka_server_replicamanager_underminisrpartitioncount) > 0` | partitions refuse acks=all |
| `sum(kafka_server_replicamanager_underreplicatedpartitions) > 0`, for minutes | a broker is down or does not keep up |
| `sum(kafka_controller_kafkacontroller_activecontrollercount) != 1`, for a minute | there is no active controller |
| `penstock_log_directory_free_bytes / penstock_log_directory_total_bytes < 0.1` | a disk is nearly full |
| `sum by (consumergroup) (kafka_consumergroup_lag) > 100000` | a group falls behind |
| `changes(penstock_consumergroup_generation[10m]) > 10` | a group keeps rebalancing |
| `penstock_transaction_oldest_open_seconds > 900` | a transaction has been open for long |
| `histogram_quantile(0.99, rate(penstock_loop_lag_seconds_bucket[5m])) > 0.1` | a node is overloaded |

`penstock doctor` checks for the same problems and more, and recommends what to do ([doctor.md](doctor.md)).

A node counts some metrics as events happen. It collects the others on each scrape, a few milliseconds at a time;
simultaneous scrapes share one result. [benchmarks.md](benchmarks.md) has the cost. Metrics name at most
`penstock.metrics.max.series` partitions individually.

The port serves everybody who can reach it, unless you protect it:

```properties
penstock.metrics.protocol=https             # with the key store of ssl.keystore.*
penstock.metrics.user=prometheus            # basic authentication
penstock.metrics.password=...
penstock.metrics.bearer.token=...           # or a token
```

`listener.name.metrics.ssl.keystore.location` gives the port a key store of its own. `penstock top` and
`penstock doctor` take user and password, or the token, from `--command-config` or `--profile`, by the same names.

Clients can push metrics of their own to the brokers ([howto/client-metrics.md](howto/client-metrics.md)). They are on
the same page, and begin with `penstock_client_`. Clients choose their names, so they are not listed below.

A node logs plain text by default. With `penstock.log.format=json` every line is a JSON object with the fields `time`
(RFC 3339, UTC), `level`, `logger`, `node` and `message`, and `exception` and `thread` if they apply.
"""


def metrics_page() -> str:
    lines = [NOTICE, "", *METRICS_INTRODUCTION.splitlines()]
    sections: dict[str, list[Family]] = {}
    for family in FAMILIES.values():
        sections.setdefault(family.section, []).append(family)
    for section, families in sections.items():
        lines += ["", f"## {section}", "", "| metric | kind | labels | what it is |", "|---|---|---|---|"]
        for family in families:
            labels = ", ".join(f"`{label}`" for label in family.labels)
            lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"


CLI_INTRODUCTION = """\
# The command line

`penstock COMMAND --help` prints the same information. Commands that talk to a cluster take `--bootstrap-server` (or
`PENSTOCK_BOOTSTRAP`), work with any Kafka-compatible cluster, and print JSON with `--json`. The exit status is 0 on
success, 1 on failure (with one line on stderr), 2 for wrong usage, and 130 after Ctrl-C.
"""


def cli_page() -> str:
    lines = [NOTICE, "", *CLI_INTRODUCTION.splitlines()]
    panels = ("Run", "Use", "Look")
    first = sorted(application().commands.items(), key=lambda item: panels.index(item[1].rich_help_panel))
    for path, command in _commands(dict(first), ("penstock",)):
        level = "##" if len(path) == 2 else "###"
        lines += ["", f"{level} {' '.join(path)}", ""]
        if path == ("penstock", server.NAME):
            lines += [server.SUMMARY, "", "```shell", "penstock server [-o KEY=VALUE] FILE", "```", ""]
            lines += ["| option | what it does |", "|---|---|"]
            lines += ["| `FILE` | File of settings by [Kafka's names](settings.md). |"]
            lines += ["| `-o`, `--override KEY=VALUE` | Setting that overrides the file; repeatable. |"]
            continue
        lines += _help(command)
        shown = [parameter for parameter in command.params if not parameter.hidden]
        if shown and not getattr(command, "commands", None):
            lines += ["", "| option | what it does | default |", "|---|---|---|"]
            lines += [_parameter(parameter) for parameter in shown]
    return "\n".join(lines) + "\n"


def _commands(commands: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in commands.items():
        if not command.hidden:
            yield (*path, name), command
            yield from _commands(getattr(command, "commands", {}), (*path, name))


def _help(command: Any) -> list[str]:
    """Paragraphs as they are, examples as code; terminals' markup is Markdown's."""
    lines: list[str] = []
    for paragraph in (command.help or "").split("\n\n"):
        if lines:
            lines.append("")
        if paragraph.startswith("    "):
            examples = [re.sub(r"\[/?bold\]", "", line).strip() for line in paragraph.splitlines()]
            lines += ["```shell", *(example.replace("\\[", "[") for example in examples), "```"]
        else:
            lines.append(re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", paragraph))
    return lines


def _parameter(parameter: Any) -> str:
    default = parameter.default
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        named = [*parameter.opts, *parameter.secondary_opts]
        takes = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.rpartition('_')[2].upper()}"
        name = ", ".join(f"`{each}`" for each in [*named[:-1], named[-1] + takes])
    about = parameter.help or ""
    if parameter.envvar:
        about += f" Or `{parameter.envvar}`."
    if isinstance(parameter.show_default, str):
        shown = parameter.show_default
    elif default is None or default is False or default == [] or callable(default):
        shown = "*required*" if parameter.required else ""
    else:
        shown = f"`{getattr(default, 'value', default)}`"
    cells = (cell.replace("|", "\\|").replace("\\[", "[") for cell in (name, about, shown))
    return f"| {' | '.join(cells)} |".replace("  |", " |")


ERRORS_INTRODUCTION = """\
# Errors

What a broker answers when it cannot do what it was asked. Names and numbers are Kafka's, so that whatever your client
prints can be looked up here. *Repeated* says whether Kafka's clients take the error for a passing one and repeat the
request by themselves, usually with fresh metadata: if such an error reaches your application, it has lasted for as long
as the client was willing to wait.

Errors of Penstock's own clients have names of their own: see [Producer and Consumer](clients.md#errors) and
[topics as Arrow tables](arrow.md#when-things-go-wrong). `penstock doctor` finds the causes of many of them:
see [there](doctor.md).
"""
# The packages whose code answers requests. Clients have other uses for the same codes.
NODE_PACKAGES = (
    "broker",
    "controller",
    "groups",
    "log",
    "metadata",
    "model",
    "raft",
    "records",
    "replication",
    "security",
    "settings",
    "telemetry",
    "transactions",
)


def errors_page() -> str:
    with (HERE / "errors.toml").open("rb") as file:
        sections: dict[str, dict[str, str]] = tomllib.load(file)
    given = errors_given()
    advised = [ErrorCode[name] for advice in sections.values() for name in advice]
    if unadvised := given - set(advised):
        raise SystemExit(f"docs/errors.toml: no advice for {', '.join(sorted(code.name for code in unadvised))}")
    if unused := set(advised) - given:
        raise SystemExit(f"docs/errors.toml: no code returns {', '.join(sorted(code.name for code in unused))}")
    lines = [NOTICE, "", *ERRORS_INTRODUCTION.splitlines()]
    for title, advice in sections.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| code | error | repeated | what happened | what to do |",
            "|---:|---|---|---|---|",
        ]
        for code in (ErrorCode[name] for name in advice):
            repeated = "yes" if code.retriable else ""
            lines.append(f"| {int(code)} | `{code.name}` | {repeated} | {code.text} | {advice[code.name]} |")
    return "\n".join(lines) + "\n"


def errors_given() -> set[ErrorCode]:
    """Codes that the source of a node names otherwise than to compare with them, alone or as a set."""
    given: set[ErrorCode] = set()
    source = HERE.parent / "src" / "penstock"
    for path in sorted(path for package in NODE_PACKAGES for path in (source / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        comparisons = (node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.MatchValue | ast.Set))
        compared = {id(inner) for node in comparisons for inner in ast.walk(node)}
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="ErrorCode"), attr=name) if id(node) not in compared:
                    given |= {ErrorCode[name]} if name in ErrorCode.__members__ else set()
    return given - {ErrorCode.NONE}


PAGES = {
    "settings.md": settings_page,
    "apis.md": apis_page,
    "metrics.md": metrics_page,
    "cli.md": cli_page,
    "errors.md": errors_page,
    "../architecture/modules.md": runpy.run_path(str(HERE / "layers.py"))["modules_page"],
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
    runpy.run_path(str(HERE / "pictures" / "draw.py"), run_name="__main__")


if __name__ == "__main__":
    main()
