"""Parts of `penstock migrate`: what its commands do, and what they show meanwhile."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cli.arguments import connect
from penstock.cli.output import fail, note, print_json, print_table, size_text

if TYPE_CHECKING:
    from penstock.client.wire.admin import Admin
    from penstock.migrate.plan import Step
    from penstock.migrate.state import ClusterState, Quorum
    from penstock.migrate.voters import VoterStep

_BAR = 30
_WAIT_S = 0.5
# How often the bar is written while a partition is compared.
_SECONDS = 0.5
_SECONDS_BETWEEN_LINES = 10.0


def node_ids(option: str, text: str) -> list[int]:
    ids = [each.strip() for each in text.split(",")]
    if not all(each.isdecimal() for each in ids):
        fail(f"{option} {text!r}: nodes are given by their numbers, as in 1,2,3")
    return [int(each) for each in ids]


def _sides(
    state: ClusterState, kind: str, brokers: str | None, leaving: str | None
) -> tuple[Collection[int], Collection[int]]:
    """The brokers to move from, and those to move to."""
    of_kind = [each.broker_id for each in state.brokers.values() if each.kind == kind and not each.fenced]
    arriving = node_ids("--to", brokers) if brokers else of_kind
    if not arriving:
        fail(f"no broker of {kind} is in the cluster: start one ('penstock migrate join'), or give --to")
    gone = node_ids("--from", leaving) if leaving else [each for each in state.brokers if each not in arriving]
    silent = [each.broker_id for each in state.brokers.values() if each.kind == "unknown" and each.broker_id in gone]
    if silent and not leaving:
        fail(f"broker {silent[0]} does not answer, so its kind is unknown: give --from")
    return gone, arriving


def move_partitions(
    bootstrap: str,
    kind: str,
    brokers: str | None,
    leaving: str | None,
    throttle: int | None,
    parallel: int,
    dry_run: bool,
    json: bool,
) -> None:
    from penstock.client.wire.cluster import Cluster
    from penstock.migrate.moving import Move
    from penstock.migrate.observe import observe
    from penstock.migrate.plan import CannotMove, Phase, plan
    from penstock.migrate.verify import ReplicasDiffer

    with connect(bootstrap) as admin, contextlib.closing(Cluster(bootstrap)) as cluster:
        state = observe(admin)
        gone, arriving = _sides(state, kind, brokers, leaving)
        try:
            if dry_run:
                _print_plan([step for step in plan(state, gone, arriving) if step.phase is not Phase.DONE], json)
                return
            bar = _Bar()
            move = Move(admin, cluster, gone, arriving, parallel=parallel, bytes_per_second=throttle, read=bar.read)
            compared = 0
            for progress in move.run():
                compared += sum(verified.compared_bytes for verified in progress.verified)
                bar.show(progress.steps)
            bar.close()
        except (CannotMove, ReplicasDiffer) as error:
            fail(str(error))
    print(f"moved to {', '.join(map(str, arriving))}; {size_text(compared)} were compared")


def _print_plan(steps: Sequence[Step], json: bool) -> None:
    rows = [
        {
            "topic": step.partition.topic,
            "partition": step.partition.partition,
            "phase": str(step.phase),
            "replicas": step.present,
            "target": step.target,
        }
        for step in steps
    ]
    if json:
        print_json(rows)
    elif rows:
        print_table(["TOPIC", "PARTITION", "PHASE", "REPLICAS", "TARGET"], [list(row.values()) for row in rows])
    else:
        note("nothing is left to move")


class _Bar:
    """One line on a terminal that is written anew; a line for each change elsewhere."""

    def __init__(self) -> None:
        self._last = ""
        self._steps: Sequence[Step] = ()
        self._read = 0
        self._is_terminal = sys.stderr.isatty()
        self._due = 0.0

    def show(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        line = self._line()
        if line == self._last:
            return
        self._last = line
        self._due = time.monotonic() + (_SECONDS if self._is_terminal else _SECONDS_BETWEEN_LINES)
        print(f"\r\x1b[K{line}" if self._is_terminal else line, end="" if self._is_terminal else "\n", file=sys.stderr)
        sys.stderr.flush()

    def read(self, size: int) -> None:
        """So many bytes more were read to compare them, which may take long."""
        self._read += size
        if self._steps and time.monotonic() > self._due:
            self.show(self._steps)

    def close(self) -> None:
        if self._last and self._is_terminal:
            print(file=sys.stderr)

    def _line(self) -> str:
        from penstock.migrate.plan import Phase, progress

        counts = progress(self._steps)
        filled = _BAR * counts[Phase.DONE] // max(1, len(self._steps))
        waiting = f"{counts[Phase.WAIT]} wait for a source in sync, " if counts[Phase.WAIT] else ""
        return (
            f"[{'#' * filled}{'.' * (_BAR - filled)}] {counts[Phase.DONE]}/{len(self._steps)} partitions; "
            f"{counts[Phase.COPYING]} being copied, {waiting}{counts[Phase.RELEASE]} to verify, "
            f"{counts[Phase.COPY]} to copy; {size_text(self._read)} read to compare"
        )


def undo_copies(bootstrap: str, dry_run: bool) -> None:
    from penstock.migrate.moving import undo
    from penstock.migrate.observe import observe
    from penstock.migrate.plan import undone

    with connect(bootstrap) as admin:
        targets = undone(observe(admin)) if dry_run else undo(admin)
    for partition, replicas in targets.items():
        print(f"{'would take' if dry_run else 'took'} {partition} back to {','.join(map(str, replicas))}")
    if not targets:
        note("no partition has copies that are not released")


def endpoints_of(
    admin: Admin, node_id: int, addresses: Mapping[int, str], quorum: Quorum
) -> Mapping[str, tuple[str, int]]:
    """Where a controller is: as given, as the quorum knows, or as its settings as a broker say."""
    from penstock.client.wire.cluster import parse_bootstrap
    from penstock.migrate.observe import controller_endpoints
    from penstock.migrate.plan import CannotMove

    listener = next((name for each in quorum.voters for name in each.endpoints), "CONTROLLER")
    if node_id in addresses:
        return {listener: parse_bootstrap(addresses[node_id])[0]}
    known = next((each.endpoints for each in quorum.voters if each.node_id == node_id), {})
    endpoints = known or controller_endpoints(admin, node_id)
    if not endpoints:
        raise CannotMove(f"where is controller {node_id}? It is no broker: give --to {node_id}@HOST:PORT")
    return endpoints


def check_bootstrap(admin: Admin, arriving: Collection[int], addresses: Mapping[int, str], quorum: Quorum) -> None:
    """Fail if a broker would not find the quorum when only the new controllers vote."""
    from penstock.migrate.observe import finds_none_of

    new = [address for node_id in arriving for address in endpoints_of(admin, node_id, addresses, quorum).values()]
    others = [each.broker_id for each in admin.cluster.describe().brokers if each.broker_id not in arriving]
    lost = finds_none_of(admin, others, new)
    if lost:
        host, port = new[0]
        fail(
            f"broker {', '.join(map(str, lost))} would not find the new quorum: add {host}:{port} to "
            "controller.quorum.bootstrap.servers in its server.properties, and restart it"
        )


def change_quorum(
    admin: Admin,
    arriving: Collection[int],
    leaving: Collection[int] | None,
    addresses: Mapping[int, str],
    dry_run: bool,
) -> list[int]:
    """Change the voters, or say how; returns who votes then. `leaving`: None for all others."""
    from penstock.migrate.observe import quorum_of
    from penstock.migrate.patience import patiently
    from penstock.migrate.voters import Change, after, next_step
    from penstock.migrate.voting import change_voters

    quorum = patiently(lambda: quorum_of(admin))
    gone = [each.node_id for each in quorum.voters if each.node_id not in arriving] if leaving is None else leaving
    note(f"voters: {', '.join(str(voter.node_id) for voter in quorum.voters)}; the leader is {quorum.leader_id}")
    patiently(lambda: check_bootstrap(admin, arriving, addresses, quorum))
    if dry_run:
        while (step := next_step(quorum, gone, arriving)) is not None:
            if step.change is Change.WAIT:
                fail(f"controller {step.voter.node_id} has not caught up with the quorum yet")
            print(f"would {step.change} voter {step.voter.node_id}")
            quorum = after(quorum, step)
    else:

        def act(step: VoterStep, now: Quorum) -> None:
            _change_voter(admin, step, addresses, now)

        for step in change_voters(lambda: quorum_of(admin), act, gone, arriving):
            print(f"{'added' if step.change is Change.ADD else 'removed'} voter {step.voter.node_id}", flush=True)
        quorum = patiently(lambda: quorum_of(admin))
    return [voter.node_id for voter in quorum.voters]


def _change_voter(admin: Admin, step: VoterStep, addresses: Mapping[int, str], quorum: Quorum) -> None:
    from penstock.migrate.voters import Change

    voter = step.voter
    if step.change is Change.REMOVE:
        admin.voters.remove(voter.node_id, voter.directory_id)
    else:
        admin.voters.add(voter.node_id, voter.directory_id, endpoints_of(admin, voter.node_id, addresses, quorum))


def check_unused(admin: Admin, broker_ids: Collection[int]) -> None:
    """Fail if a node holds a replica or votes."""
    from penstock.migrate.observe import quorum_of

    voters = {voter.node_id for voter in quorum_of(admin).voters}
    topics = admin.topics.list(internal=True)
    for broker_id in broker_ids:
        held = [
            f"{topic.name}-{each.partition}"
            for topic in topics
            for each in topic.partitions
            if broker_id in each.replicas
        ]
        if held:
            fail(f"broker {broker_id} holds {len(held)} replicas, such as {held[0]}: run 'penstock migrate move'")
        if broker_id in voters:
            fail(f"node {broker_id} is a voter: run 'penstock migrate controllers'")


def retire_broker(admin: Admin, broker_id: int, deadline: float) -> None:
    from penstock.migrate.patience import patiently
    from penstock.model.errors import ErrorCode, KafkaError

    is_noted = False
    while True:
        brokers = patiently(admin.cluster.describe).brokers
        broker = next((each for each in brokers if each.broker_id == broker_id), None)
        if broker is None or broker.fenced:
            break
        if not is_noted:
            note(f"stop node {broker_id} now; waiting")
            is_noted = True
        if time.monotonic() > deadline:
            fail(f"node {broker_id} is still running")
        time.sleep(_WAIT_S)
    # A topic may have been created on it, or it may vote, since the command began.
    check_unused(admin, [broker_id])
    try:
        admin.cluster.unregister_broker(broker_id)
    except KafkaError as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
    print(f"unregistered {broker_id}", flush=True)


def sizes_of(admin: Admin) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for each in admin.log_dirs.describe():
        sizes[each.broker_id] = sizes.get(each.broker_id, 0) + sum(replica.size for replica in each.replicas)
    return sizes
