"""What clients and other nodes may do on this node, and whether this node may do its own part.

With ACLs, the authorizer is loaded from the metadata when the quorum is open, and follows its changes. Nodes ask each
other for things, too: a node that its own settings or the ACLs lock out fails when it starts, with the line to add.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.net.audit import Audit
from penstock.broker.net.inter_node_security import InterNodeSecurity
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.security.acl_authorizer import AclAuthorizer
from penstock.security.authorizer import CLUSTER, AllowAll, Authorizer, Operation
from penstock.security.principal import parse_principal
from penstock.settings.acls import locked_out
from penstock.settings.node import NodeSettings


class NodeAccess:
    def __init__(
        self,
        settings: NodeSettings,
        security: InterNodeSecurity,
        *,
        now: Callable[[], float],
        is_quorum_loaded: Callable[[], bool],
        authorizer: Authorizer | None = None,
    ) -> None:
        """`authorizer`: used instead of the one that the settings name."""
        self._settings = settings
        self._security = security
        self._acls: AclAuthorizer | None = None
        self._is_loaded = False
        if settings.has_acls and authorizer is None:
            self._acls = authorizer = AclAuthorizer(
                settings.super_user_names,
                allow_without_acl=settings.allow_everyone_if_no_acl_found,
                is_loaded=is_quorum_loaded,
                on_refused=Audit(now).refused,
            )
        self.authorizer: Authorizer = authorizer or AllowAll()

    def load(self, image: MetadataImage) -> None:
        self._is_loaded = True
        if self._acls is not None:
            self._acls.load(image.acls)

    def committed(self, delta: MetadataDelta) -> None:
        if self._acls is not None and self._is_loaded and (delta.added_acls or delta.removed_acls):
            self._acls.change(delta.added_acls.values(), delta.removed_acls.values())

    def check_controller(self) -> None:
        """Controllers must answer each other before any ACL is loaded."""
        settings = self._settings
        principal = self._security.principal_at(settings.quorum_listener) if settings.is_controller else None
        if self._acls is not None and principal is not None and principal not in settings.super_user_names:
            raise KafkaError(ErrorCode.INVALID_CONFIG, locked_out(settings, settings.quorum_listener, principal))

    def check_broker(self, local_host: str | None) -> None:
        """Brokers send each other requests: without the right to do so, no partition would have followers."""
        settings = self._settings
        listener = settings.inter_broker_listener
        principal = settings.own_principals.get(listener) or self._security.principal_at(listener)
        if self._acls is None or principal is None or local_host is None:
            return
        if not self._acls.authorize(parse_principal(principal), local_host, Operation.CLUSTER_ACTION, CLUSTER):
            raise KafkaError(ErrorCode.INVALID_CONFIG, locked_out(settings, listener, principal))
