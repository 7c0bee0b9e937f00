"""The asyncio twins do what the clients do, and leave the loop free meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from client_world import NewTopic
from narrowing import present
from penstock import AsyncConsumer, AsyncProducer, Consumer, DeadLetter, Json, Producer, Sent, String, TopicPartition
from penstock.client.errors import (
    ClientError,
    Closed,
    NotDelivered,
    QueueFull,
    RecordTooLarge,
    TimedOut,
    UnknownTopic,
    Unreachable,
    Unserializable,
)


@pytest.fixture
def group(unique_topic: Callable[[str], str]) -> str:
    return unique_topic("group")


def test_sending_and_reading(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(partitions=2)

    async def main() -> None:
        async with AsyncProducer(bootstrap, key=String(), value=Json()) as producer:
            first = await producer.send(topic, {"n": 0}, key="k", timestamp=5, headers={"h": b"1"})
            assert first == Sent(topic, first.partition, 0, 5)
            sent = await asyncio.gather(*(producer.send(topic, {"n": n}, key="k") for n in range(1, 100)))
            assert [each.offset for each in sent] == list(range(1, 100))
            places = [await producer.send(topic, None) for _ in range(4)]
            assert [each.partition for each in places] == [0, 1, 0, 1]
        consumer = AsyncConsumer(
            bootstrap, topic, group=group, key=String(), value=Json(), settings={"fetch.wait.max.ms": 20}
        )
        async with consumer:
            records = []
            async for record in consumer:
                records.append(record)
                if len(records) == 50:
                    break
            while len(records) < 104:
                records += await consumer.batch(20, 60)
            assert [record.value["n"] for record in records if record.value is not None] == list(range(100))
            assert sum((await consumer.lag()).values()) == 0
            await consumer.commit()
            assert (await consumer.committed())[TopicPartition(topic, first.partition)] == 102
            await consumer.seek(topic, first.partition, 98)
            again = await consumer.poll(60)
            assert again is not None
            assert again.value == {"n": 98}
            await consumer.seek(topic, first.partition, "latest")
            assert [record async for record in consumer.records(idle=0.1)] == []

    asyncio.run(main())


def test_back_pressure(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    async def main() -> None:
        async with AsyncProducer(bootstrap, settings={"queue.buffering.max.messages": 50}) as producer:
            deliveries = []
            for number in range(2000):
                deliveries.append(producer.send(topic, b"%d" % number))
                if number % 100 == 0:
                    await producer.drain()
            await producer.flush()
            assert [delivery.result().offset for delivery in deliveries] == list(range(2000))
        stuck = AsyncProducer(
            bootstrap, max_block=2, linger_ms=60_000, settings={"queue.buffering.max.messages": 10}
        )  # fmt: skip
        for _ in range(20):
            unknown = stuck.send(topic, b"")
        with pytest.raises(TimedOut, match="await"):
            unknown.result()
        with pytest.raises(QueueFull, match="10 records wait"):
            await stuck.drain()
        await stuck.close()
        assert unknown.result().offset == 2019

    asyncio.run(main())


def test_failures_are_told(bootstrap: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="1000")

    async def main() -> None:
        producer = AsyncProducer(bootstrap, value=String(), max_block=2)
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            await producer.send("no-such-topic", "")
        with pytest.raises(Unserializable, match="7 is not for String"):
            producer.send(topic, 7)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLarge):
            await producer.send(topic, "x" * 5000)
        producer.send(topic, "x" * 5000)
        with pytest.raises(NotDelivered, match="1 record was"):
            await producer.flush()
        producer.send(topic, "x" * 5000)
        with pytest.raises(NotDelivered, match="1 record was"):
            await producer.close()
        with pytest.raises(Closed):
            producer.send(topic, "")
        nowhere = AsyncProducer("127.0.0.1:1", max_block=2)
        with pytest.raises(Unreachable):
            await nowhere.send("t", b"")
        await nowhere.close()
        with pytest.raises(Unreachable):
            await AsyncConsumer("127.0.0.1:1", "t", timeout=2).start()
        consumer = AsyncConsumer(bootstrap, topic)
        with pytest.raises(ClientError, match="async with"):
            await consumer.commit()
        await consumer.start()
        await consumer.close()
        with pytest.raises(Closed):
            await consumer.batch()

    asyncio.run(main())


def test_a_cancelled_read_loses_nothing(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()

    async def main() -> None:
        async with AsyncConsumer(bootstrap, topic, group=group) as consumer:
            reading = asyncio.create_task(consumer.poll(None))
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            async with AsyncProducer(bootstrap) as producer:
                for number in range(5):
                    await producer.send(topic, b"%d" % number)
            values: list[bytes] = []
            while len(values) < 5:
                try:
                    record = await asyncio.wait_for(consumer.poll(None), 0.05)
                except TimeoutError:
                    continue
                assert record is not None
                values.append(record.value)
            assert values == [b"0", b"1", b"2", b"3", b"4"]

    asyncio.run(main())


def test_hooks_may_use_the_consumer(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    told: list[str] = []

    async def main() -> None:
        async def begin_late(partitions: list[TopicPartition]) -> None:
            told.append("assigned")
            for place in partitions:
                await consumer.seek(*place, 6)

        async def commit(partitions: list[TopicPartition]) -> None:
            told.append("revoked")
            await consumer.commit()

        consumer = AsyncConsumer(
            bootstrap, topic, group=group, auto_commit=False, on_assigned=begin_late, on_revoked=commit
        )
        async with consumer:
            assert [present(await consumer.poll(60)).value for _ in range(3)] == [b"6", b"7", b"8"]

    asyncio.run(main())
    assert told == ["assigned", "revoked"]
    with Consumer(bootstrap, topic, group=group) as consumer:
        assert consumer.batch(1, 60).values() == [b"9"]


def test_read_process_write_and_dead_letters(bootstrap: str, new_topic: NewTopic, group: str) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    with Producer(bootstrap) as producer:
        for value in (b"1", b"{", b"3"):
            producer.send(source, value)

    async def main() -> None:
        async with (
            AsyncConsumer(
                bootstrap, source, group=group, auto_commit=False, value=Json(), on_error=DeadLetter(dead)
            ) as consumer,
            AsyncProducer(bootstrap, value=Json(), transactional_id=group) as producer,
        ):
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    producer.send(target, "aborted")
                    raise ZeroDivisionError
            done = 0
            while done < 2:
                async with producer.transaction() as transaction:
                    batch = await consumer.batch(10, 60)
                    for record in batch:
                        producer.send(target, record.value * 10)
                    await transaction.send_offsets(consumer)
                    done += len(batch)
            assert consumer.dead_lettered == 1
            assert await consumer.committed() == {TopicPartition(source, 0): 3}

    asyncio.run(main())
    with Consumer(bootstrap, target) as consumer:
        values: list[bytes] = []
        while len(values) < 2:
            values += consumer.batch(10, 60).values()
    assert values == [b"10", b"30"]
