"""The APIs a controller listener serves: one module each, opening with the versions it serves.

Those that clients may also ask of a broker, which passes them on, are the broker's own modules.
"""

from penstock.broker.apis import (
    add_raft_voter,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    remove_raft_voter,
    unregister_broker,
    update_features,
)
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

CONTROLLER_APIS = (
    fetch, api_versions, create_topics, delete_topics, describe_configs, alter_configs, create_partitions,
    elect_leaders, incremental_alter_configs, alter_partition_reassignments, list_partition_reassignments, vote,
    begin_quorum_epoch, end_quorum_epoch, describe_quorum, alter_partition, update_features, envelope, fetch_snapshot,
    describe_cluster, broker_registration, broker_heartbeat, unregister_broker, allocate_producer_ids,
    controller_registration, assign_replicas_to_dirs, add_raft_voter, remove_raft_voter, update_raft_voter,
)  # fmt: skip
