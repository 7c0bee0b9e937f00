"""Writes the pages of the documentation that follow from the code: `make docs`.

settings.md is made from the declarations in `penstock.settings`, apis.md from the handlers of the broker. A test
compares them with what is checked in.
"""

from __future__ import annotations

from pathlib import Path

from penstock.broker.apis import BROKER_APIS
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


PAGES = {"settings.md": settings_page, "apis.md": apis_page}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
