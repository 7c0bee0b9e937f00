"""`penstock topics`: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.arguments import connect, delete_each
from penstock.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Json,
    command_group,
    fail,
    note,
    parse_pairs,
    print_json,
    print_table,
)
from penstock.cli.topics_reassign import reassign, reassignments

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.client.wire.admin.topics import TopicDescription
    from penstock.model.ids import TopicPartition

app = command_group("Create, list, describe, alter, move and delete topics.")

Name = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
ConfigPairs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Setting of the topic; repeatable.")
]


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Number of partitions.", show_default="num.partitions"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="Replicas of each partition.",
            show_default="default.replication.factor",
        ),
    ] = None,
    config: ConfigPairs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do not fail if a topic exists.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Create topics.

    Example:

        penstock topics create orders -p 6 -c retention.ms=86400000
    """
    from penstock.model.errors import ErrorCode, KafkaError

    configs = parse_pairs("--config", config or ())
    created = []
    with connect(bootstrap_server) as admin:
        for name in names:
            try:
                topic = admin.topics.create(
                    name, partitions=partitions, replication_factor=replication_factor, configs=configs
                )
            except KafkaError as error:
                if not (if_not_exists and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise
                continue
            created.append(topic)
            if not json:
                print(
                    f"created {topic.name}" + (f" with {topic.partitions} partitions" if topic.partitions > 0 else "")
                )
    if json:
        print_json(created)


@app.command("list")
def list_topics(
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    names_only: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the topics of a cluster.

    Example:

        penstock topics list --names | grep ^orders
    """
    with connect(bootstrap_server) as admin:
        topics = admin.topics.list(internal=internal)
    if json:
        print_json(
            [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id,
                    "internal": topic.internal,
                    "partitions": len(topic.partitions),
                    "replication_factor": topic.replication_factor,
                }
                for topic in topics
            ]
        )
    elif names_only:
        for topic in topics:
            print(topic.name)
    elif topics:
        print_table(
            ["TOPIC", "PARTITIONS", "REPLICAS", "ID"],
            [[topic.name, len(topic.partitions), topic.replication_factor, topic.topic_id] for topic in topics],
        )
    else:
        note("no topics")


@app.command()
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Default: all topics.")] = None,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", help="Include settings that have their default value.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show partitions, replicas, offsets and settings.

    Example:

        penstock topics describe orders
    """
    with connect(bootstrap_server) as admin:
        topics = admin.topics.describe(names) if names else admin.topics.list()
        described = [_describe(admin, topic, all_configs) for topic in topics]
    if json:
        print_json(described)
        return
    for position, topic in enumerate(described):
        if position:
            print()
        print(f"{topic['name']}  id {topic['topic_id'] or '-'}  {len(topic['partitions'])} partitions")
        for name, value in topic["configs"].items():
            print(f"  {name}={value}")
        print_table(
            ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"],
            [
                [
                    row["partition"],
                    row["leader"],
                    row["leader_epoch"],
                    row["replicas"],
                    row["isr"],
                    row["start"],
                    row["end"],
                ]
                for row in topic["partitions"]
            ],
        )


def _describe(admin: Admin, topic: TopicDescription, all_configs: bool) -> dict[str, Any]:
    from penstock.client.wire.admin.configs import ConfigSource, ResourceType
    from penstock.client.wire.admin.topics import EARLIEST, LATEST
    from penstock.model.ids import TopicPartition

    # Only the leader of a partition returns offsets.
    led = [
        TopicPartition(topic.name, partition.partition)
        for partition in topic.partitions
        if partition.leader is not None
    ]
    starts = admin.topics.offsets(led, EARLIEST) if led else {}
    ends = admin.topics.offsets(led, LATEST) if led else {}
    entries = admin.configs.describe(ResourceType.TOPIC, topic.name)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "configs": {
            entry.name: entry.value
            for entry in entries
            if all_configs or entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.name
        },
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline_replicas": partition.offline_replicas,
                "start": starts.get(TopicPartition(topic.name, partition.partition)),
                "end": ends.get(TopicPartition(topic.name, partition.partition)),
            }
            for partition in topic.partitions
        ],
    }


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New number of partitions.", show_default=False)
    ] = None,
    config: ConfigPairs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Reset this setting to its default; repeatable."),
    ] = None,
    delete_records_before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTITION:OFFSET",
            help="Delete the records before an offset; `end` deletes all current records; repeatable.",
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Change settings, add partitions, delete old records.

    Examples:

        penstock topics alter orders -c retention.ms=3600000
        penstock topics alter orders -p 12
        penstock topics alter orders --delete-records-before 0:1000
    """
    from penstock.client.wire.admin import ResourceType

    configs = parse_pairs("--config", config or ())
    before = _offsets_by_partition(name, delete_records_before or [])
    if not (partitions or configs or delete_config or before):
        fail("nothing to change: give --partitions, --config, --delete-config or --delete-records-before")
    done: dict[str, object] = {"name": name}
    with connect(bootstrap_server) as admin:
        if configs or delete_config:
            admin.configs.alter(ResourceType.TOPIC, name, configs, delete=delete_config or ())
            done |= {"configs": configs, "deleted_configs": delete_config or []}
        if partitions:
            admin.topics.add_partitions(name, partitions)
            done["partitions"] = partitions
        if before:
            starts = admin.topics.delete_records(before)
            done["start_offsets"] = {str(partition.partition): start for partition, start in starts.items()}
    if json:
        print_json(done)
    else:
        print(f"altered {name}")


def _offsets_by_partition(topic: str, texts: list[str]) -> dict[TopicPartition, int]:
    from penstock.model.ids import TopicPartition

    before: dict[TopicPartition, int] = {}
    for text in texts:
        partition, _, offset = text.partition(":")
        if not partition.isdecimal() or not (offset.isdecimal() or offset == "end"):
            fail(f"--delete-records-before {text!r} is not PARTITION:OFFSET or PARTITION:end")
        before[TopicPartition(topic, int(partition))] = -1 if offset == "end" else int(offset)
    return before


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a topic does not exist.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete topics and all their records.

    Example:

        penstock topics delete orders --if-exists
    """
    from penstock.model.errors import ErrorCode

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
    with connect(bootstrap_server) as admin:
        delete_each(names, admin.topics.delete, missing, json=json)


app.command()(reassign)
app.command()(reassignments)
