"""The APIs that a controller listener serves: one module each, whose docstring gives the supported versions.

APIs that clients may also send to a broker, which forwards them, are modules of `broker/apis` (`ADMIN_APIS`).
"""

from penstock.broker.controller_apis import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    describe_cluster,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from penstock.broker.controller_apis.services import ControllerServices
from penstock.broker.net.router import Api

# A controller also serves the broker's `ADMIN_APIS`.
CONTROLLER_APIS: tuple[Api[ControllerServices], ...] = (
    fetch, vote, begin_quorum_epoch, end_quorum_epoch, fetch_snapshot, update_raft_voter, alter_partition,
    envelope, describe_cluster, broker_registration, broker_heartbeat, allocate_producer_ids,
    controller_registration, assign_replicas_to_dirs,
)  # fmt: skip
