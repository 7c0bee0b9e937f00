"""Checks a change of a listener's key or trust store before it is made, on the broker that would have to use it.

Only this broker can read its stores, and clients send changes for one broker to that broker. A store that cannot be
used, or a certificate with other names, would otherwise be stored in the metadata, and only the log would report it. A
client that may not change the settings is not told anything about files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.broker.apis.config_resources import AnyResource
from penstock.broker.apis.services import AdminServices
from penstock.broker.net.request import Request
from penstock.metadata.image import ResourceType
from penstock.model.errors import KafkaError
from penstock.protocol.messages import incremental_alter_configs as incremental
from penstock.security.authorizer import CLUSTER, Operation
from penstock.settings.tls import is_of_listener_tls

_SET: Final = 0


def check_first(
    services: AdminServices,
    request: Request,
    resources: Iterable[AnyResource],
    forward: Callable[[Request], None],
    refusal: Callable[[KafkaError], Any],
) -> None:
    """Forward the request; if it changes stores of this broker, check them before, and answer `refusal` if they cannot
    be used."""
    properties = _properties_after(services, request, resources)
    if properties is None:
        forward(request)
        return
    postponed = request.postponed()

    def checked(error: KafkaError | None) -> None:
        if not postponed.is_wanted:
            return
        if error is None:
            forward(postponed)
        else:
            postponed.answer(refusal(error))

    services.listeners.check_certificates(properties, checked)


def _properties_after(
    services: AdminServices, request: Request, resources: Iterable[AnyResource]
) -> dict[str, str] | None:
    """The settings of this node after the change; None if it concerns no store, or is refused anyway."""
    settings = services.settings
    own = next(
        (
            each
            for each in resources
            if each.resource_type == ResourceType.BROKER and each.resource_name == str(settings.static.node_id)
        ),
        None,
    )
    if (
        own is None
        or not request.may_be_forwarded
        or not any(is_of_listener_tls(config.name) for config in own.configs)
        or not request.could(Operation.ALTER_CONFIGS, CLUSTER)
    ):
        return None
    is_incremental = isinstance(own, incremental.AlterConfigsResource)
    changed = dict(settings.layers.broker) if is_incremental else {}
    for config in own.configs:
        operation = config.config_operation if isinstance(config, incremental.AlterableConfig) else _SET
        if operation == _SET and config.value is not None:
            changed[config.name] = config.value
        else:
            changed.pop(config.name, None)
    return settings.layers._replace(broker=changed).effective
