"""Why ACLs are not served: clients such as MirrorMaker tell a cluster without ACLs by this answer, and go on."""

from __future__ import annotations

from penstock.broker.net.request import Request
from penstock.model.errors import ErrorCode, KafkaError
from penstock.security.authorizer import CLUSTER, Operation


def refusal_of(request: Request, operation: Operation) -> KafkaError:
    if not request.may(operation, CLUSTER):
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
