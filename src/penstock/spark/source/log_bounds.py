"""Resolves the start and end options to offsets by querying the logs. Refuses offsets outside the log beforehand."""

from __future__ import annotations

from penstock.spark.source.errors import OutOfRange, report_losses
from penstock.spark.source.offsets import Bound, Offsets, resolve, within_log
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.topic_logs import TopicLogs


def starting_offsets(options: SourceOptions, logs: TopicLogs, earliest: Offsets, latest: Offsets) -> Offsets:
    """The start offset of each partition."""
    bound = options.start
    start = resolved(bound, logs, earliest, latest, fail=options.fail_on_data_loss)
    for partition in earliest.keys() - start.keys():
        if not options.start_after_last:
            raise OutOfRange(
                f"{bound.option}: {partition} has no record at or after {bound.of(partition)}; "
                f'option("startingOffsetsByTimestampStrategy", "latest") begins at its end'
            )
        start[partition] = latest[partition]
    return start


def resolved(bound: Bound, logs: TopicLogs, earliest: Offsets, latest: Offsets, *, fail: bool) -> Offsets:
    bound.check_names(earliest)
    found: Offsets = {}
    for timestamp, partitions in bound.times(earliest).items():
        found |= logs.at_time(partitions, timestamp)
    resolved = resolve(bound, earliest, latest, found)
    problems = within_log(bound, resolved, earliest, latest)
    if problems and fail:
        raise OutOfRange(f'{problems[0]}; option("failOnDataLoss", "false") takes the nearest that is')
    report_losses(problems, fail=False)
    return {each: min(max(offset, earliest[each]), latest[each]) for each, offset in resolved.items()}
