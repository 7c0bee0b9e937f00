"""The part of a partition that a task reads, as Spark sends it to the task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from penstock.model.ids import ZERO_UUID, Uuid
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.planning import Piece, split


@dataclass
class PiecePartition(InputPartition):
    """What one task reads. Spark pickles it."""

    topic: str
    partition: int
    first: int
    end: int
    topic_id: Uuid = ZERO_UUID


def input_partitions(
    pieces: Iterable[Piece], options: SourceOptions, topic_ids: Mapping[str, Uuid]
) -> list[InputPartition]:
    return [
        PiecePartition(*piece.partition, piece.first, piece.end, topic_ids.get(piece.partition.topic, ZERO_UUID))
        for piece in split(pieces, options.partitions_min, options.records_max)
    ]
