"""The APIs a broker listener serves: one module each, opening with the versions it serves."""

from penstock.broker.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    update_features,
)

BROKER_APIS = (
    produce, fetch, list_offsets, metadata, find_coordinator, api_versions, create_topics, delete_topics,
    delete_records, init_producer_id, offset_for_leader_epoch, describe_configs, alter_configs, describe_log_dirs,
    create_partitions, incremental_alter_configs, describe_quorum, update_features, describe_cluster,
    describe_producers, list_config_resources, describe_topic_partitions,
)  # fmt: skip
