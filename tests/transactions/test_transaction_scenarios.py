"""Transactions as stories in text: `*.txt` beside this file.

set version=1 transaction_two_phase_commit_enable=true    start over with these
init t [1000/0] [timeout=..] [2pc] [keep] [v=..]          InitProducerId
add t 1000/0 a-0 a-1 [v=..]                               AddPartitionsToTxn; `verify` is its verify-only form
offsets t 1000/0 group [v=..]                             AddOffsetsToTxn (groups are at home by their length)
end t 1000/0 commit|abort [v=..]                          EndTxn
markers [a-0=gone|none|2]                                 take what is due; partitions are led by broker 1 unless told
answer [a-0=ERROR]                                        the oldest markers that were taken are answered
lose                                                      ... or never will be
tick [+ms]
held <command>                                            what it writes is not committed before `commit`
commit
crash                                                     the next coordinator loads the log
hurry t 32766                                             as if there had been so many transactions
describe t, list [state=..] [id=..] [longer=..] [like=..]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowing import expect
from penstock.coordinator.decision import Caller, Decision
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.codec import decode
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from penstock.settings.transactions import TransactionSettings
from penstock.transactions.markers import NO_LEADER, Markers
from penstock.transactions.records import record_of, transaction_of
from penstock.transactions.state import Identity, Transaction
from scenario_text import play
from transaction_world import Coordinator, Log

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, rewrite: bool) -> None:
    play(path, Table().execute, rewrite)


def identity(text: str) -> Identity:
    producer_id, epoch = text.split("/")
    return Identity(int(producer_id), int(epoch))


def partition(text: str) -> TopicPartition:
    topic, index = text.rsplit("-", 1)
    return TopicPartition(topic, int(index))


def pair(producer_id: int, epoch: int) -> str:
    return f"{producer_id}/{epoch}"


def told(transaction: Transaction) -> str:
    words = [transaction.transactional_id, transaction.status.label]
    words.append(pair(transaction.producer_id, transaction.producer_epoch))
    if transaction.next_producer_id != -1:
        words.append(f"next {pair(transaction.next_producer_id, transaction.next_producer_epoch)}")
    words += [str(joined) for joined in sorted(transaction.partitions)]
    if transaction.started_ms != -1:
        words.append(f"since {transaction.started_ms}")
    return " ".join(words)


class Table:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.sent: deque[Markers] = deque()
        self.commit = True

    def execute(self, command: str) -> Iterator[str]:
        name, *words = command.split()
        self.commit = name != "held"
        if not self.commit:
            name, *words = words
        flags = dict(word.split("=", 1) for word in words if "=" in word)
        do: Callable[[list[str], dict[str, str]], Iterator[str]] = getattr(self, f"do_{name}")
        return do([word for word in words if "=" not in word], flags)

    def happened(self, decision: Decision) -> Iterator[str]:
        for record in decision.records:
            key = expect(TransactionLogKey, record.key)
            if record.value is None:
                yield f"record {key.transactional_id} forgotten"
            else:
                yield f"record {told(transaction_of(key, expect(TransactionLogValue, record.value)))}"

    # -- requests

    def do_set(self, _words: list[str], flags: dict[str, str]) -> Iterator[str]:
        version = int(flags.pop("version", "2"))
        next_id = int(flags.pop("next_id", "1000"))
        settings: dict[str, Any] = {
            name: value == "true" if value in ("true", "false") else int(value) for name, value in flags.items()
        }
        ids = iter(range(next_id, next_id + 1000))
        self.coordinator = Coordinator(version=version, ids=lambda: next(ids), **settings)
        self.sent.clear()
        yield f"at {self.coordinator.now}"

    def do_init(self, words: list[str], flags: dict[str, str]) -> Iterator[str]:
        shown = [identity(word) for word in words[1:] if "/" in word]
        decision, response = self.coordinator.init(
            "" if words[0] == "-" else words[0],
            *shown,
            timeout=int(flags.get("timeout", "60000")),
            v=int(flags.get("v", "6" if "2pc" in words or "keep" in words else "5")),
            two_phase="2pc" in words,
            keep="keep" in words,
            commit=self.commit,
        )
        yield from self.happened(decision)
        line = f"reply {ErrorCode(response.error_code).name} {pair(response.producer_id, response.producer_epoch)}"
        if response.ongoing_txn_producer_id != -1:
            line += f" ongoing {pair(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)}"
        yield line

    def do_add(self, words: list[str], flags: dict[str, str], verify: bool = False) -> Iterator[str]:
        decision, errors = self.coordinator.add(
            words[0],
            identity(words[1]),
            [partition(word) for word in words[2:]],
            v=int(flags.get("v", "5")),
            verify=verify,
            commit=self.commit,
        )
        yield from self.happened(decision)
        yield "reply " + " ".join(f"{key}={ErrorCode(error).name}" for key, error in sorted(errors.items()))

    def do_verify(self, words: list[str], flags: dict[str, str]) -> Iterator[str]:
        return self.do_add(words, flags, verify=True)

    def do_offsets(self, words: list[str], flags: dict[str, str]) -> Iterator[str]:
        decision, error = self.coordinator.add_offsets(
            words[0], identity(words[1]), words[2], v=int(flags.get("v", "4")), commit=self.commit
        )
        yield from self.happened(decision)
        yield f"reply {ErrorCode(error).name}"

    def do_end(self, words: list[str], flags: dict[str, str]) -> Iterator[str]:
        decision, response = self.coordinator.end(
            words[0],
            identity(words[1]),
            {"commit": True, "abort": False}[words[2]],
            v=int(flags.get("v", "5")),
            commit=self.commit,
        )
        yield from self.happened(decision)
        yield f"reply {ErrorCode(response.error_code).name} {pair(response.producer_id, response.producer_epoch)}"

    # -- markers

    def do_markers(self, _words: list[str], flags: dict[str, str]) -> Iterator[str]:
        leaders = {"gone": None, "none": NO_LEADER}

        def leader_of(asked: TopicPartition) -> int | None:
            word = flags.get(str(asked), "1")
            return leaders[word] if word in leaders else int(word)

        due = self.coordinator.markers(leader_of)
        for broker, markers in sorted(due.by_broker.items()):
            for sent in markers:
                self.sent.append(sent)
                words = [f"to {broker}", sent.transactional_id, pair(sent.producer_id, sent.producer_epoch)]
                words.append("COMMIT" if sent.committed else "ABORT")
                words += [str(asked) for asked in sent.partitions]
                yield f"{' '.join(words)} (coordinator {sent.coordinator_epoch}, version {sent.transaction_version})"
        yield from self.happened(due.decision)
        yield f"due again {self.coordinator.shard.markers_deadline}"

    def do_answer(self, _words: list[str], flags: dict[str, str]) -> Iterator[str]:
        sent = self.sent.popleft()
        errors = {key: ErrorCode[flags.get(str(key), "NONE")] for key in sent.partitions}
        shard = self.coordinator.shard
        yield from self.happened(self.coordinator.run(shard.markers_answered(sent, errors, self.coordinator.now)))
        if shard.fenced:
            yield "fenced"

    def do_lose(self, _words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        self.coordinator.shard.markers_lost(self.sent.popleft(), self.coordinator.now)
        yield f"due again {self.coordinator.shard.markers_deadline}"

    # -- time and fate

    def do_tick(self, words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        yield from self.happened(self.coordinator.tick(int(words[0]) if words else 0))
        yield f"at {self.coordinator.now}, next {self.coordinator.shard.deadline}"

    def do_commit(self, _words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        self.coordinator.shard.committed(self.coordinator.shard.position)
        yield f"markers due {self.coordinator.shard.markers_deadline}"

    def do_crash(self, _words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        old = self.coordinator
        settings = {name: getattr(old.settings, name) for name in TransactionSettings.__dataclass_fields__}
        log = Log(old.log.records, old.log.leader_epoch)
        self.coordinator = Coordinator(log, version=old.version, now=old.now, ids=old.ids, **settings)
        self.sent.clear()
        assert self.coordinator.state == old.state
        known = {decode(TransactionLogKey, key, 0).transactional_id for key, _value, _version in log.records}
        yield f"loaded {len(log.records)} records of {len(known)} ids, coordinator {log.leader_epoch}"

    def do_hurry(self, words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        current = self.coordinator.state[words[0]]
        later = current.initialized(
            Identity(current.producer_id, int(words[1])), current.timeout_ms, self.coordinator.now
        )
        yield from self.happened(self.coordinator.run(Decision([record_of(later, self.coordinator.version)], [])))

    # -- questions

    def do_describe(self, words: list[str], _flags: dict[str, str]) -> Iterator[str]:
        request = DescribeTransactionsRequest(transactional_ids=words)
        shard = self.coordinator.shard
        (reply,) = shard.describe_transactions(request, 0, Caller(), self.coordinator.now).replies
        for state in expect(DescribeTransactionsResponse, reply.response).transaction_states:
            topics = " ".join(f"{topic.topic}{topic.partitions}" for topic in state.topics)
            yield (
                f"{state.transactional_id}: {ErrorCode(state.error_code).name} {state.transaction_state} "
                f"{pair(state.producer_id, state.producer_epoch)} timeout {state.transaction_timeout_ms} "
                f"since {state.transaction_start_time_ms} {topics}"
            ).rstrip()

    def do_list(self, _words: list[str], flags: dict[str, str]) -> Iterator[str]:
        request = ListTransactionsRequest(
            state_filters=flags["state"].split(",") if "state" in flags else [],
            producer_id_filters=[int(flags["id"])] if "id" in flags else [],
            duration_filter=int(flags.get("longer", "-1")),
            transactional_id_pattern=flags.get("like"),
        )
        (reply,) = self.coordinator.shard.list_transactions(request, 0, Caller(), self.coordinator.now).replies
        response = expect(ListTransactionsResponse, reply.response)
        if response.error_code:
            yield ErrorCode(response.error_code).name
        for name in response.unknown_state_filters:
            yield f"unknown state {name}"
        for state in response.transaction_states:
            yield f"{state.transactional_id} {state.producer_id} {state.transaction_state}"
