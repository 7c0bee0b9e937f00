"""The APIs that a broker listener serves: one module each, whose docstring gives the supported versions.

Each family of APIs has its own set of services (`services`).
"""

from typing import Never

from penstock.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from penstock.broker.apis.services import (
    AdminServices,
    ClusterServices,
    FetchServices,
    GroupServices,
    LogServices,
    ProduceServices,
    ShareServices,
    TelemetryServices,
    TransactionServices,
)
from penstock.broker.net.router import Api

PRODUCE_APIS: tuple[Api[ProduceServices], ...] = (produce,)
FETCH_APIS: tuple[Api[FetchServices], ...] = (fetch,)
SHARE_APIS: tuple[Api[ShareServices], ...] = (share_fetch, share_acknowledge)
LOG_APIS: tuple[Api[LogServices], ...] = (
    list_offsets, delete_records, offset_for_leader_epoch, alter_replica_log_dirs, describe_log_dirs,
    describe_producers,
)  # fmt: skip
CLUSTER_APIS: tuple[Api[ClusterServices], ...] = (
    metadata, find_coordinator, describe_cluster, describe_topic_partitions,
)  # fmt: skip
GROUP_APIS: tuple[Api[GroupServices], ...] = (
    join_group, sync_group, heartbeat, leave_group, offset_commit, offset_fetch, offset_delete, list_groups,
    describe_groups, delete_groups, consumer_group_heartbeat, consumer_group_describe, initialize_share_group_state,
    read_share_group_state, write_share_group_state, delete_share_group_state, read_share_group_state_summary,
    share_group_heartbeat, share_group_describe, describe_share_group_offsets, alter_share_group_offsets,
    delete_share_group_offsets, streams_group_heartbeat, streams_group_describe,
    streams_group_topology_description_update,
)  # fmt: skip
TRANSACTION_APIS: tuple[Api[TransactionServices], ...] = (
    init_producer_id, add_partitions_to_txn, add_offsets_to_txn, end_txn, write_txn_markers, txn_offset_commit,
    describe_transactions, list_transactions,
)  # fmt: skip
TELEMETRY_APIS: tuple[Api[TelemetryServices], ...] = (get_telemetry_subscriptions, push_telemetry)
# APIs that every node serves.
ADMIN_APIS: tuple[Api[AdminServices], ...] = (
    api_versions, create_topics, delete_topics, describe_configs, alter_configs, create_partitions,
    incremental_alter_configs, describe_quorum, update_features, elect_leaders, alter_partition_reassignments,
    list_partition_reassignments, unregister_broker, add_raft_voter, remove_raft_voter, describe_acls, create_acls,
    delete_acls, sasl_handshake, sasl_authenticate, describe_user_scram_credentials, alter_user_scram_credentials,
    create_delegation_token, renew_delegation_token, expire_delegation_token, describe_delegation_token,
    alter_client_quotas, unregister_controller,
)  # fmt: skip
# APIs that only a broker serves, with the same services.
BROKER_ADMIN_APIS: tuple[Api[AdminServices], ...] = (list_config_resources, describe_client_quotas)

BROKER_APIS: tuple[Api[Never], ...] = (
    *PRODUCE_APIS, *FETCH_APIS, *SHARE_APIS, *LOG_APIS, *CLUSTER_APIS, *GROUP_APIS, *TRANSACTION_APIS, *ADMIN_APIS,
    *BROKER_ADMIN_APIS, *TELEMETRY_APIS,
)  # fmt: skip
