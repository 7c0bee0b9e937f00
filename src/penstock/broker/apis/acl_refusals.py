"""Refuses ACL requests: clients such as MirrorMaker recognize a cluster without ACLs by this error, and continue."""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.security.authorizer import CLUSTER, Operation


def refusal_of(request: Request, operation: Operation) -> KafkaError:
    if not request.may(operation, CLUSTER):
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
