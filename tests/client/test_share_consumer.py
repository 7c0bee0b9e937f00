"""`ShareConsumer` and `AsyncShareConsumer` against a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from client_world import NewTopic
from narrowing import present
from penstock import Admin, AsyncShareConsumer, Int64, Producer, ShareConsumer, ShareRecord, TopicPartition
from penstock.client.errors import BadSetting, Closed, Undeserializable, UnknownTopic
from penstock.model.errors import KafkaError

NewQueue = Callable[..., tuple[str, str]]


@pytest.fixture
def queue(bootstrap: str, new_topic: NewTopic, unique_topic: Callable[[str], str]) -> NewQueue:
    """A topic with numbers from 0 on, and a group that has read none of them."""

    def create(count: int, partitions: int = 1) -> tuple[str, str]:
        topic, group = new_topic(partitions=partitions), unique_topic("share")
        send(bootstrap, topic, range(count))
        with Admin(bootstrap) as admin:
            admin.share_groups.reset(group, "earliest", topics=[topic])
        return topic, group

    return create


def send(bootstrap: str, topic: str, numbers: range) -> None:
    with Producer(bootstrap, value=Int64()) as producer:
        for number in numbers:
            producer.send(topic, number)


def lag(bootstrap: str, group: str) -> int:
    with Admin(bootstrap) as admin:
        return sum(present(each.lag) for each in admin.share_groups.offsets(group))


def test_workers_share_a_partition(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(200)
    done: list[int] = []
    first = threading.Barrier(3)

    def work() -> None:
        with ShareConsumer(bootstrap, topic, group=group, value=Int64(), max_records=5) as consumer:
            for number, record in enumerate(consumer.records(idle=2)):
                if number == 0:
                    # Each has a record before any of them goes on.
                    first.wait(60)
                done.append(record.value)
        assert consumer.refused == 0

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(done) == list(range(200))
    assert lag(bootstrap, group) == 0


def test_what_raised_is_delivered_again(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(3)
    with (
        pytest.raises(ZeroDivisionError),
        ShareConsumer(bootstrap, topic, group=group, value=Int64(), max_records=2) as consumer,
    ):
        for record in consumer:
            assert 1 // (1 - record.value)  # the second one raises
    assert lag(bootstrap, group) == 2
    with (
        pytest.raises(KeyError),
        ShareConsumer(bootstrap, topic, group=group, value=Int64(), reject=(KeyError,)) as consumer,
    ):
        record = present(consumer.poll(None))
        assert (record.value, record.delivery_count) == (1, 2)
        raise KeyError
    with ShareConsumer(bootstrap, topic, group=group, value=Int64()) as consumer:
        # The second was rejected. The third was taken along twice, and given back.
        record = present(consumer.poll(None))
        assert record.value == 2
        assert repr(record).startswith(f"ShareRecord({topic}-0@2, key=None, value=2, delivery_count=")
    assert lag(bootstrap, group) == 0


def test_saying_what_becomes_of_each_record(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(6)
    with ShareConsumer(bootstrap, topic, group=group, value=Int64(), explicit=True) as consumer:
        records: list[ShareRecord[bytes, int]] = []
        while len(records) < 6:
            records += consumer.batch(10, 10)
        consumer.renew(records[0])
        for record in reversed(records[:3]):
            consumer.accept(record)
        consumer.reject(records[3])
        consumer.release(records[4])
        consumer.flush()
        with pytest.raises(ValueError, match="is not held"):
            consumer.accept(records[0])
        again = present(consumer.poll(None))
        assert (again.value, again.delivery_count) == (4, 2)
        consumer.accept(again)
        # Nothing was said about the last: it is released at the end.
    assert lag(bootstrap, group) == 1
    with pytest.raises(Closed):
        consumer.poll()


def test_work_goes_on_after_failures(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(4)
    attempts: dict[int, int] = {}

    def handle(record: ShareRecord[bytes, int]) -> None:
        attempts[record.value] = attempts.get(record.value, 0) + 1
        if record.value == 1:
            raise ValueError("never")
        if record.value == 2 and record.delivery_count == 1:
            raise RuntimeError("not now")

    with ShareConsumer(bootstrap, topic, group=group, value=Int64(), reject=(ValueError,)) as consumer:
        assert consumer.work(handle, idle=2) == 3
    assert attempts == {0: 1, 1: 1, 2: 2, 3: 1}
    assert lag(bootstrap, group) == 0


def test_records_that_cannot_be_read(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(1)
    with Producer(bootstrap) as producer:
        producer.send(topic, b"three")
    with ShareConsumer(bootstrap, topic, group=group, value=Int64()) as consumer:
        assert present(consumer.poll(None)).value == 0
        with pytest.raises(Undeserializable, match="offset 1: value b'three'"):
            consumer.poll(None)
    with ShareConsumer(bootstrap, topic, group=group, value=Int64(), on_error="reject") as consumer:
        assert list(consumer.records(idle=1)) == []
    assert lag(bootstrap, group) == 0


def test_asyncio(bootstrap: str, queue: NewQueue) -> None:
    topic, group = queue(5, partitions=2)

    async def main() -> None:
        async with AsyncShareConsumer(bootstrap, topic, group=group, value=Int64()) as consumer:
            found = [record.value async for record in consumer.records(idle=2)]
            assert sorted(found) == list(range(5))
            with pytest.raises(asyncio.TimeoutError):
                async with asyncio.timeout(0.3):
                    await consumer.poll(None)
            await asyncio.to_thread(send, bootstrap, topic, range(5, 6))
            record = present(await consumer.poll(None))
            await consumer.renew(record)
            await consumer.release(record)
            record = present(await consumer.poll(None))
            assert (record.value, record.delivery_count) == (5, 2)
            await consumer.accept(record)
            await consumer.flush()
            assert consumer.refused == 0
        with pytest.raises(Closed):
            await consumer.poll()

    asyncio.run(main())
    assert lag(bootstrap, group) == 0


def test_refusals(bootstrap: str, new_topic: NewTopic, queue: NewQueue) -> None:
    topic, group = queue(1)
    with pytest.raises(BadSetting):
        ShareConsumer(bootstrap, group=group)
    with pytest.raises(BadSetting):
        ShareConsumer(bootstrap, topic, group=group, max_records=0)
    with pytest.raises(UnknownTopic):
        ShareConsumer(bootstrap, "no-such-topic", group=group)
    with Admin(bootstrap) as admin:
        admin.groups.reset(f"{group}-other", "earliest", partitions=[TopicPartition(topic, 0)])
    with pytest.raises(KafkaError, match="is not a share group"):
        ShareConsumer(bootstrap, topic, group=f"{group}-other")
