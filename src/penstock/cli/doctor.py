"""`penstock doctor`: checks a cluster and reports problems, causes and remedies."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.arguments import parse_duration
from penstock.cli.output import DEFAULT_BOOTSTRAP, Bootstrap, Json, coloured, note, print_json

if TYPE_CHECKING:
    from penstock.doctor.findings import Finding
    from penstock.doctor.observations import Observations

HEALTHY, FINDINGS, CANNOT_CHECK = 0, 1, 2
WIDTH = 100


Address = Annotated[
    str | None,
    typer.Argument(metavar="[HOST:PORT,...]", help="Address to check.", show_default="--bootstrap-server"),
]
ClusterId = Annotated[str | None, typer.Option(metavar="ID", help="Expected cluster id.", show_default=False)]
MaxLag = Annotated[int, typer.Option(min=0, metavar="RECORDS", help="Report groups with a larger lag.")]
MinDiskFree = Annotated[
    float, typer.Option(min=0, max=100, metavar="PERCENT", help="Report disks with less free space.")
]
MaxClockSkew = Annotated[str, typer.Option(metavar="DURATION", help="Report clocks that are further off.")]
LongerThan = Annotated[str, typer.Option(metavar="DURATION", help="Check transactions that are open for longer.")]
MaxDeadLetters = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="RECORDS",
        help="Report running pipelines with more dead letters, and share groups that gave up more records.",
    ),
]
Watch = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="SECONDS", help="How long to observe groups.", show_default="1; 5 if a group lags or rebalances"
    ),
]
Timeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait for an answer.")]


def doctor(
    address: Address = None,
    cluster_id: ClusterId = None,
    max_lag: MaxLag = 10_000,
    min_disk_free: MinDiskFree = 10.0,
    max_clock_skew: MaxClockSkew = "2s",
    longer_than: LongerThan = "15m",
    max_dead_letters: MaxDeadLetters = 0,
    watch: Watch = None,
    timeout: Timeout = 5.0,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> int:
    """Check a cluster from this machine, and report what is wrong, why, and what to do.

    Checks the addresses (the given ones, and those that brokers advertise to clients), the cluster id, brokers and
    controllers, partitions, clocks, disks, transactions, groups and pipelines. The command only reads. Exits with 0 if
    it finds no problem, 1 if it finds one, 2 if no broker answers. Works with any Kafka-compatible cluster; it can
    check the clocks of brokers that have metrics.

    Examples:

        penstock doctor
        penstock doctor broker-1.example.com:9092 --cluster-id 5L6g3nShT-eMCtK--X86sw
        penstock doctor --json | jq '.findings[].code'
    """
    from penstock.client.errors import ClientError
    from penstock.doctor.diagnosis import can_check, diagnose
    from penstock.doctor.findings import Limits
    from penstock.doctor.observing import Patience, observe

    limits = Limits(
        lag_max=max_lag,
        disk_free_min=min_disk_free / 100,
        clock_skew_max_ms=_milliseconds("--max-clock-skew", max_clock_skew),
        cluster_id=cluster_id,
        dead_letters_max=max_dead_letters,
    )
    patience = Patience(
        timeout_s=timeout,
        lag_max=max_lag,
        transaction_ms=_milliseconds("--longer-than", longer_than),
        **({} if watch is None else {"watch_s": watch, "settled_watch_s": watch}),
    )
    try:
        seen = observe(_where(address, bootstrap_server), patience)
    except ClientError as error:
        note(f"penstock: {error}")
        return CANNOT_CHECK
    findings = diagnose(seen, limits)
    status = CANNOT_CHECK if not can_check(seen) else FINDINGS if findings else HEALTHY
    if json:
        checked = {"checked": seen.cluster_id is not None or can_check(seen), "cluster_id": seen.cluster_id}
        print_json({**checked, "findings": findings, "unobserved": seen.unobserved})
    else:
        _print(seen, findings, status)
    return status


def _where(address: str | None, bootstrap_server: str) -> str:
    """The address, with the settings that options or variables refer to."""
    from penstock.client.access import parse_reference, with_source

    source = parse_reference(bootstrap_server).source
    if address is None or "@" in address or not source:
        return address or bootstrap_server
    return with_source(address, source)


def _milliseconds(option: str, text: str) -> int:
    return int(parse_duration(option, text).total_seconds() * 1000)


def _print(seen: Observations, findings: list[Finding], status: int) -> None:
    if status != CANNOT_CHECK:
        up = sum(not broker.fenced for broker in seen.brokers)
        print(
            f"cluster {seen.cluster_id}: {_count(up, 'broker')}, {_count(len(seen.partitions), 'partition')}, "
            f"{_count(len(seen.groups) + len(seen.share_groups), 'group')}"
        )
    for number, finding in enumerate(findings):
        if number or status != CANNOT_CHECK:
            print()
        mark = "ERROR" if finding.severity == "error" else "warning"
        colour = "\x1b[1;31m" if finding.severity == "error" else "\x1b[1;33m"
        print(f"{colour}{mark}\x1b[0m {finding.what}" if coloured() else f"{mark} {finding.what}")
        about = [("about", finding.subject)] if finding.subject not in finding.what else []
        for title, text in (*about, ("why", finding.why), ("do", finding.todo)):
            print(textwrap.fill(text, WIDTH, initial_indent=f"  {title:6}", subsequent_indent=" " * 8))
    if status == HEALTHY:
        print("all is well")
    for each in seen.unobserved:
        note(f"not checked: {each}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
