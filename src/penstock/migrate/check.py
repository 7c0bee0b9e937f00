"""Judges whether a cluster can be moved, and says what stands in the way: pure.

A *blocker* must be removed first: nodes of Penstock could not join, or would not do what the cluster relies on. A
*remark* is something that an operator should know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.metadata.features import (
    KRAFT_VERSION,
    METADATA_4_0_IV3,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    Levels,
    refused_because,
)
from penstock.migrate.markers import FOLLOWER_REPLICAS, LEADER_REPLICAS, are_ours
from penstock.migrate.properties import FILL_IN, Settings
from penstock.migrate.state import ClusterState, Kind
from penstock.model.ids import TopicPartition
from penstock.settings.acls import ACL_AUTHORIZERS
from penstock.settings.known import missing_protection
from penstock.settings.listeners import parse_protocol_map
from penstock.settings.sasl import MECHANISMS, SASL_PROTOCOLS

_TIERED: Final = "remote.storage.enable"
_UPGRADE: Final = "kafka-features.sh --bootstrap-server HOST:PORT upgrade"


class Severity(StrEnum):
    BLOCKER = "blocker"
    REMARK = "remark"
    FINE = "fine"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    subject: str
    words: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What `check` looks at."""

    state: ClusterState
    # Finalized levels, with kraft.version.
    features: Mapping[str, int]
    settings: Settings
    # The settings of topics that have their own, by topic.
    topic_settings: Mapping[str, Mapping[str, str | None]]
    # The number of groups, by type.
    groups: Mapping[str, int] = field(default_factory=dict)
    quotas: int = 0
    log_bytes: int = 0
    # What each broker has of them.
    broker_bytes: Mapping[int, int] = field(default_factory=dict)
    # Of the directories of each broker that reports it.
    usable_bytes: Mapping[int, int] = field(default_factory=dict)
    offline_directories: Sequence[str] = ()
    # Why a node of Penstock with the cluster's settings would not start; None if it would.
    refusal: str | None = None


def check(survey: Survey) -> list[Finding]:
    """Blockers first."""
    found = [
        *_features(survey.features),
        *_settings(survey),
        *_topics(survey),
        *_groups(survey),
        *_health(survey.state, survey.offline_directories),
        *_disk(survey),
        *_throttles(survey.state),
    ]
    if survey.quotas:
        found.append(
            Finding(Severity.FINE, "quotas", f"{survey.quotas} quotas are in the metadata, and apply as before")
        )
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def can_move(findings: Sequence[Finding]) -> bool:
    return all(finding.severity is not Severity.BLOCKER for finding in findings)


def _features(features: Mapping[str, int]) -> list[Finding]:
    found: list[Finding] = []
    level = features.get(METADATA_VERSION, 0)
    if level < METADATA_4_0_IV3:
        found.append(
            Finding(
                Severity.BLOCKER,
                METADATA_VERSION,
                f"metadata.version {level} is older than {METADATA_4_0_IV3} (4.0-IV3)",
                f"upgrade all brokers to Kafka 4.0 or later, then, online: {_UPGRADE} --release-version 4.0",
            )
        )
    if not features.get(KRAFT_VERSION, 0):
        found.append(
            Finding(
                Severity.BLOCKER,
                KRAFT_VERSION,
                "kraft.version is 0: the voters of the quorum are fixed in controller.quorum.voters",
                f"online, from Kafka 4.1 on: {_UPGRADE} --feature {KRAFT_VERSION}=1; brokers can join before that",
            )
        )
    newer = {name: each for name, each in features.items() if name != METADATA_VERSION or level >= METADATA_4_0_IV3}
    for words in refused_because(newer):
        name = next(each for each in sorted(newer) if f" {each} " in words)
        maximum = SUPPORTED_FEATURES.get(name, Levels(0, 0)).maximum
        remedy = (
            f"online: kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature {name}={maximum}"
            if name != METADATA_VERSION
            else "use a version of Penstock that serves it"
        )
        found.append(Finding(Severity.BLOCKER, name, words, remedy))
    if not found:
        listed = ", ".join(f"{name} {each}" for name, each in sorted(features.items()))
        found.append(Finding(Severity.FINE, "features", f"all finalized features are served: {listed}"))
    return found


def _settings(survey: Survey) -> list[Finding]:
    settings = survey.settings
    found = [*_protections(settings), *_authorizer(settings), *_mechanisms(settings)]
    if survey.refusal is not None and not found:
        words = f"a node with the cluster's settings would not start: {survey.refusal}"
        found.append(Finding(Severity.BLOCKER, "settings", words))
    unused = [name for name in settings.unused() if missing_protection(name, settings.agreed()[name] or "") is None]
    if unused:
        found.append(Finding(Severity.REMARK, "settings", f"Penstock does not use {', '.join(unused)}"))
    differing = settings.differing()
    if differing:
        words = f"the brokers do not agree on {', '.join(differing)}: 'join' leaves them out"
        found.append(Finding(Severity.REMARK, "settings", words))
    secret = sorted(name for name, value in settings.common().items() if value == FILL_IN)
    if secret:
        words = f"{', '.join(secret)} cannot be read over the wire: fill them in after 'join'"
        found.append(Finding(Severity.REMARK, "passwords", words))
    for broker_id, given in settings.brokers.items():
        directories = next((each.value or "" for each in given if each.name == "log.dirs"), "").split(",")
        if len(directories) > 1:
            words = f"broker {broker_id} has {len(directories)} log directories; a new node can have several, too"
            found.append(Finding(Severity.FINE, "log.dirs", words))
    return found


def _protections(settings: Settings) -> list[Finding]:
    names = sorted({each.name for given in settings.brokers.values() for each in given})
    return [
        Finding(Severity.BLOCKER, name, f"it asks for {missing}, which Penstock does not have")
        for name in names
        if (missing := next(filter(None, (missing_protection(name, each) for each in settings.values(name))), None))
    ]


def _authorizer(settings: Settings) -> list[Finding]:
    given = settings.values("authorizer.class.name")
    other = [each for each in given if each not in ACL_AUTHORIZERS]
    if other:
        words = f"{other[0]} decides who may do what; Penstock has {ACL_AUTHORIZERS[0]} only, and would not start"
        remedy = "move its rules to ACLs of that authorizer first"
        return [Finding(Severity.BLOCKER, "authorizer", words, remedy)]
    if given:
        words = "ACLs are in the metadata; the new nodes' principals must be in super.users of the present controllers"
        return [Finding(Severity.REMARK, "authorizer", words)]
    return []


def _mechanisms(settings: Settings) -> list[Finding]:
    """Of the listeners with SASL, of each broker."""
    missing: dict[str, set[str]] = {}
    for given in settings.brokers.values():
        values = {each.name: each.value or "" for each in given}
        for listener in _sasl_listeners(values):
            general = values.get("sasl.enabled.mechanisms", "GSSAPI")
            enabled = values.get(f"listener.name.{listener.lower()}.sasl.enabled.mechanisms", general)
            for mechanism in filter(None, (each.strip() for each in enabled.split(","))):
                if mechanism not in MECHANISMS:
                    missing.setdefault(mechanism, set()).add(listener)
    return [
        Finding(
            Severity.BLOCKER,
            "SASL",
            f"listener {', '.join(sorted(listeners))} has the mechanism {mechanism}, which Penstock does not have",
            f"let its users log in with one of {', '.join(MECHANISMS)} first",
        )
        for mechanism, listeners in sorted(missing.items())
    ]


def _sasl_listeners(values: Mapping[str, str]) -> list[str]:
    protocols = parse_protocol_map(values.get("listener.security.protocol.map", ""))
    text = values.get("listeners") or values.get("advertised.listeners") or ""
    names = [entry.partition("://")[0].strip().upper() for entry in text.split(",") if "://" in entry]
    return [name for name in names if protocols.get(name, name) in SASL_PROTOCOLS]


def _topics(survey: Survey) -> list[Finding]:
    tiered = sorted(topic for topic, values in survey.topic_settings.items() if values.get(_TIERED) == "true")
    if not tiered:
        return []
    words = f"tiered topics cannot be moved: {', '.join(tiered)}"
    remedy = f"disable {_TIERED} for them (KIP-950), and wait until their segments are local"
    return [Finding(Severity.BLOCKER, "tiered storage", words, remedy)]


def _groups(survey: Survey) -> list[Finding]:
    found: list[Finding] = []
    for kind, count in sorted(survey.groups.items()):
        if kind == "streams" and not SUPPORTED_FEATURES.get("streams.version", Levels(0, 0)).maximum:
            words = f"{count} streams groups use a protocol that Penstock does not serve"
            found.append(Finding(Severity.BLOCKER, "groups", words, "set group.protocol=classic in these applications"))
        else:
            found.append(Finding(Severity.FINE, "groups", f"{count} {kind} groups move with __consumer_offsets"))
    return found


def _health(state: ClusterState, offline_directories: Sequence[str]) -> list[Finding]:
    found: list[Finding] = []
    leaderless = [each for each, held in state.partitions.items() if held.leader is None]
    behind = [
        each
        for each, held in state.partitions.items()
        if held.leader is not None and set(held.isr) != set(held.replicas) and not held.reassigning
    ]
    if leaderless:
        words = f"{len(leaderless)} partitions have no leader: {_some(leaderless)}"
        found.append(Finding(Severity.BLOCKER, "partitions", words, "penstock doctor"))
    if behind:
        words = f"{len(behind)} partitions have replicas that are not in sync: {_some(behind)}"
        found.append(Finding(Severity.BLOCKER, "partitions", words, "penstock doctor"))
    others = [each for each, held in state.partitions.items() if held.reassigning and held.originals is None]
    if others:
        words = f"{len(others)} partitions are being moved by another tool: {_some(others)}"
        found.append(Finding(Severity.BLOCKER, "partitions", words, "wait until it has finished"))
    fenced = sorted(broker.broker_id for broker in state.brokers.values() if broker.fenced)
    if fenced:
        found.append(Finding(Severity.REMARK, "brokers", f"fenced: {', '.join(map(str, fenced))}"))
    found += [Finding(Severity.BLOCKER, "log directories", f"{path} is offline") for path in offline_directories]
    return found


def _disk(survey: Survey) -> list[Finding]:
    """The disks of Penstock's nodes are known only after the nodes have joined."""
    size = f"the replicas take {_gib(survey.log_bytes)}"
    arriving = [each for each in survey.state.ids(Kind.PENSTOCK) if each in survey.usable_bytes]
    free = sum(survey.usable_bytes[each] for each in arriving)
    held = sum(survey.broker_bytes.get(each, 0) for each in arriving)
    if arriving and held + free < survey.log_bytes:
        words = f"{size}, and the brokers of Penstock have {_gib(free)} free"
        return [Finding(Severity.BLOCKER, "disk", words, "give them larger disks, or let more brokers join")]
    words = f"{size}; while a partition is copied it takes twice its space in the cluster"
    return [Finding(Severity.FINE, "disk", words)]


def _throttles(state: ClusterState) -> list[Finding]:
    """Those of others: the move notes its own in the same settings."""
    found: list[Finding] = []
    if state.throttled_by_others:
        words = f"throttled replicas are in the settings of {', '.join(sorted(state.throttled_by_others))}: " + (
            "a move notes there what it does, and would not begin"
        )
        remedy = f"kafka-reassign-partitions.sh --verify, or remove {LEADER_REPLICAS} and {FOLLOWER_REPLICAS}"
        found.append(Finding(Severity.BLOCKER, "throttles", words, remedy))
    limited = sorted(each.broker_id for each in state.brokers.values() if each.throttle and not are_ours(each.throttle))
    if limited:
        words = f"brokers {', '.join(map(str, limited))} have a throttle already: 'move --throttle' would not begin"
        found.append(Finding(Severity.REMARK, "throttles", words))
    return found


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _some(partitions: Sequence[TopicPartition], limit: int = 5) -> str:
    listed = ", ".join(map(str, partitions[:limit]))
    return listed if len(partitions) <= limit else f"{listed}, ..."
