"""Writes the pages of the documentation that follow from the code: `make docs`.

settings.md is made from the declarations in `penstock.settings`, apis.md from the handlers of the broker, metrics.md
from the families it declares. A test compares them with what is checked in.
"""

from __future__ import annotations

from pathlib import Path

from penstock.broker.apis import BROKER_APIS
from penstock.broker.metrics.families import FAMILIES, Family
from penstock.protocol.apis import API
from penstock.settings.definition import Scope, Setting, settings_of
from penstock.settings.group_config import GROUP_SETTINGS
from penstock.settings.groups import GroupSettings
from penstock.settings.logs import LogSettings
from penstock.settings.network import NetworkSettings
from penstock.settings.node import BROKER_SETTINGS
from penstock.settings.observability import ObservabilitySettings
from penstock.settings.quorum import QuorumSettings
from penstock.settings.replication import ReplicationSettings
from penstock.settings.topic import TOPIC_SETTINGS
from penstock.settings.transactions import TransactionSettings

HERE = Path(__file__).parent
NOTICE = "<!-- Generated from the code by `make docs`; edit the declarations instead. -->"

NODE_SECTIONS = (
    ("Roles, identity and the metadata quorum", QuorumSettings),
    ("Sockets", NetworkSettings),
    ("Logs", LogSettings),
    ("Replication", ReplicationSettings),
    ("Consumer groups", GroupSettings),
    ("Transactions", TransactionSettings),
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
        "Names, types and defaults are Kafka's. A node reads them from its `server.properties`; those that can be",
        "changed while it runs are changed with any Kafka client, or for topics with `penstock topics alter`.",
        "",
        "## Of a topic",
        "",
        "Set when a topic is created or later. The default is that of the broker setting named in the last column.",
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
        "## Of a group",
        "",
        "Set on one group with any Kafka client, whether it exists or not, and within the bounds that brokers have",
        "(`group.consumer.min...`, `group.consumer.max...`). Members hear of it with their next heartbeat.",
        "",
        "| setting | type | default | what it does | broker setting |",
        "|---|---|---|---|---|",
    ]
    for setting in sorted(GROUP_SETTINGS.values(), key=lambda setting: setting.name):
        lines.append(f"{_row(setting)} `{setting.synonyms[0][0]}` |")
    declared: set[str] = set()
    for title, cls in NODE_SECTIONS:
        lines += _section(title, list(settings_of(cls).values()))
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
    served = {int(module.API_KEY): module.VERSIONS for module in BROKER_APIS}
    lines = [
        NOTICE,
        "",
        "# APIs",
        "",
        "What a broker serves, and says in ApiVersions that it serves. Clients choose the highest version both know.",
        "",
        "| key | API | versions |",
        "|---:|---|---|",
    ]
    for key, (low, high) in sorted(served.items()):
        lines.append(
            f"| {key} | {API[key].name} | {low} to {high} |" if low != high else f"| {key} | {API[key].name} | {low} |"
        )
    lines += [
        "",
        "InitProducerId 6 (two-phase commit, KIP-939) is served, and known to clients, where",
        "`transaction.two.phase.commit.enable` is set.",
    ]
    missing = [spec.name for key, spec in sorted(API.items()) if key not in served and "broker" in spec.listeners]
    lines += ["", "Not served yet: " + ", ".join(missing) + "."]
    return "\n".join(lines) + "\n"


METRICS_INTRODUCTION = """\
# Metrics

Every node, broker or controller, answers Prometheus where `penstock.metrics.listener` says:

```properties
penstock.metrics.listener=:9404
```

Left out, there is no such port. `penstock up` sets it, 1000 above the port of the broker where that is free, so that a
cluster on 9092 has its numbers at `http://127.0.0.1:10092/metrics`; each node's `server.properties` has the address.
Prometheus is told the addresses of all nodes:

```yaml
scrape_configs:
  - job_name: penstock
    static_configs:
      - targets: [broker-1:9404, broker-2:9404, broker-3:9404, controller-1:9404]
```

[grafana/penstock.json](grafana/penstock.json) is a dashboard of all that follows: import it in Grafana and choose the
Prometheus it should ask. Without either there is `penstock top`, which reads the same numbers from all brokers, and
what it can from offsets where there are none:

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

Names are those that Kafka's have behind Prometheus' JMX exporter, and for groups those of kafka_exporter, so that
dashboards and alerts made for Kafka find them; what is Penstock's alone begins with `penstock_`. Numbers by topic are
not repeated as a sum over all topics: `sum(rate(...))` makes one. Counters begin with 0 when a node starts.

What is worth an alert:

| expression | means |
|---|---|
| `max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0` | partitions that nobody can use |
| `sum(kafka_server_replicamanager_underminisrpartitioncount) > 0` | partitions that refuse acks=all |
| `sum(kafka_server_replicamanager_underreplicatedpartitions) > 0`, for minutes | a broker is down or does not keep up |
| `sum(kafka_controller_kafkacontroller_activecontrollercount) != 1`, for a minute | no controller |
| `penstock_log_directory_free_bytes / penstock_log_directory_total_bytes < 0.1` | a disk is nearly full |
| `sum by (consumergroup) (kafka_consumergroup_lag) > 100000` | a group falls behind |
| `changes(penstock_consumergroup_generation[10m]) > 10` | a group cannot settle |
| `penstock_transaction_oldest_open_seconds > 900` | a transaction is open for long |
| `histogram_quantile(0.99, rate(penstock_loop_lag_seconds_bucket[5m])) > 0.1` | a node is overloaded |

`penstock doctor` looks for the same and more, and says what to do ([doctor.md](doctor.md)).

What is not counted as it happens is looked up when somebody asks, a few milliseconds at a time, and those who ask at
the same time share one answer; what counting costs is in [benchmarks.md](benchmarks.md). Partitions are named one by
one up to `penstock.metrics.max.series`. The port has neither encryption nor a password: keep it on a network you trust.

A node's own log is text for people; with `penstock.log.format=json` every line is a JSON object with the fields `time`
(RFC 3339, UTC), `level`, `logger`, `node`, `message` and, where there is one, `exception` and `thread`.
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


PAGES = {"settings.md": settings_page, "apis.md": apis_page, "metrics.md": metrics_page}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
