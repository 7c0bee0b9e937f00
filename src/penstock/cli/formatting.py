"""`penstock format`: formats the directories of a new node, with the first SCRAM users of a new cluster.

A node formats its directories by itself when it starts. This command is for what must be there before the first login,
and for clusters that nodes of an older Kafka shall join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import fail, note

if TYPE_CHECKING:
    from penstock.settings.node import NodeSettings


def format_directories(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The server.properties of the node.")],
    cluster_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The id of the cluster; default: a new one.", show_default=False)
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MECHANISM=[...]",
            help="A SCRAM user: SCRAM-SHA-512=[name=USER,password=PASSWORD]. Without a password it is read from the "
            "terminal or from standard input. Repeatable.",
            show_default=False,
        ),
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option(
            metavar="RELEASE", help="Feature levels of a release of Kafka, such as 4.3.", show_default="the newest"
        ),
    ] = None,
) -> None:
    """Format the directories of a node that has not been started yet.

    Examples:

        penstock format server.properties --add-scram 'SCRAM-SHA-512=[name=admin]'
        penstock format server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qk
        penstock format server.properties --release-version 4.3
    """
    import os
    import time

    from penstock.broker.metadata.formatting import format_or_load
    from penstock.broker.metadata.scram_arguments import BadScramArgument, scram_record_of
    from penstock.io.files import RealFileSystem
    from penstock.log.meta_properties import read_meta_properties

    features = _levels(release_version)
    settings = _read(file)
    files = RealFileSystem()
    if read_meta_properties(files, settings.metadata_directory) is not None:
        fail(f"{settings.metadata_directory} is formatted already")
    try:
        records = [scram_record_of(text, read_password=_read_password) for text in add_scram or ()]
    except BadScramArgument as error:
        fail(f"--add-scram: {error}")
    if records and not settings.is_controller:
        fail("--add-scram: the first users are written by controllers, and this node is none")
    identity = format_or_load(
        files,
        settings,
        lambda: os.urandom(16),
        time.time_ns() // 1_000_000,
        cluster_id or settings.penstock_cluster_id or None,
        first_records=records,
        features=features,
    )
    note(f"formatted {', '.join(identity.directories)} for node {settings.node_id} of cluster {identity.cluster_id}")


def _levels(release: str | None) -> dict[str, int]:
    from penstock.client.wire.admin.features import levels_of
    from penstock.metadata.features import NEW_CLUSTER_FEATURES
    from penstock.model.errors import KafkaError

    if release is None:
        return dict(NEW_CLUSTER_FEATURES)
    try:
        return {name: level for name, level in levels_of(release).items() if name in NEW_CLUSTER_FEATURES}
    except KafkaError as error:
        fail(f"--release-version: {error.message}")


def _read(path: str) -> NodeSettings:
    from penstock.cli.server_properties import read_server_properties
    from penstock.settings.node import NodeSettings

    try:
        return NodeSettings.from_properties(read_server_properties(path))
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def _read_password(user: str) -> str:
    from penstock.cli.users import read_password

    return read_password(f"password of {user}: ")
