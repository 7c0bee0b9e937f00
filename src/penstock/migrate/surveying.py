"""Reads what `check` and `join` need to know about a cluster, over the wire."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable

from penstock.client.errors import ClientError, UnsupportedApi
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.configs import ConfigSource
from penstock.migrate.check import Survey
from penstock.migrate.observe import observe
from penstock.migrate.properties import FILL_IN, GivenSetting, NewNode, Settings, broker_listeners, properties
from penstock.migrate.state import Kind
from penstock.model.errors import KafkaError
from penstock.settings.jaas import MODULE_OF
from penstock.settings.node import NodeSettings

_STATIC = (ConfigSource.STATIC_BROKER_CONFIG.name,)
_JAAS = re.compile(r"listener\.name\.[^.]+\.([^.]+)\.sasl\.jaas\.config")


def survey(admin: Admin) -> Survey:
    state = observe(admin)
    settings = settings_of(admin, state.ids(Kind.KAFKA) or state.ids(Kind.PENSTOCK))
    topics = sorted({partition.topic for partition in state.partitions})
    directories = admin.log_dirs.describe()
    return Survey(
        state=state,
        features={feature.name: feature.level for feature in admin.features.describe() if feature.level},
        settings=settings,
        topic_settings=admin.configs.of_topics(topics, ["remote.storage.enable"]) if topics else {},
        groups=Counter(group.type for group in admin.groups.list()),
        quotas=_quotas(admin),
        log_bytes=sum(replica.size for each in directories for replica in each.replicas),
        broker_bytes=_by_broker((each.broker_id, replica.size) for each in directories for replica in each.replicas),
        usable_bytes=_by_broker(
            (each.broker_id, each.usable_bytes) for each in directories if each.usable_bytes is not None
        ),
        offline_directories=[f"broker {each.broker_id}: {each.path}" for each in directories if each.error],
        refusal=refusal(state.cluster_id, settings),
    )


def settings_of(admin: Admin, broker_ids: list[int]) -> Settings:
    """What stands in the files of these brokers."""
    return Settings(
        {
            broker_id: [
                GivenSetting(entry.name, None if entry.sensitive else entry.value)
                for entry in admin.configs.describe(ResourceType.BROKER, str(broker_id))
                if entry.source in _STATIC and (entry.sensitive or entry.value is not None)
            ]
            for broker_id in broker_ids
        }
    )


def _by_broker(sizes: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Brokers may have several directories."""
    total: Counter[int] = Counter()
    for broker_id, size in sizes:
        total[broker_id] += size
    return dict(total)


def _quotas(admin: Admin) -> int:
    try:
        return len(admin.quotas.describe())
    except (KafkaError, UnsupportedApi):
        return 0  # not for this user


def refusal(cluster_id: str, settings: Settings) -> str | None:
    """Why a node with these settings would not start, as a broker, or as a controller too; None if it would.

    Passwords are not known, but that there are some is: what they are does not matter to a node's start.
    """
    listener = (settings.agreed().get("controller.listener.names") or "CONTROLLER").split(",")[0].strip()
    free = next(port for port in itertools.count(9093) if port not in broker_listeners(settings).values())
    for controller_port in (None, free):
        node = NewNode(1_000_000, "localhost", controller_port, "/var/lib/penstock")
        lines = properties(node, cluster_id, settings, [("localhost", 9093)], listener)
        try:
            NodeSettings.from_properties({name: _filled_in(name, value) for name, value in lines.items()})
        except KafkaError as error:
            return error.message
        except ClientError as error:
            return str(error)
    return None


def _filled_in(name: str, value: str) -> str:
    match = _JAAS.fullmatch(name) if value == FILL_IN else None
    if match is None:
        return value
    module = MODULE_OF.get(match[1].upper(), "a.Module")
    return f'{module} required username="{FILL_IN}" password="{FILL_IN}" user_{FILL_IN}="{FILL_IN}";'
