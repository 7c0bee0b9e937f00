"""Who is still listed, and for how long."""

from __future__ import annotations

from penstock.broker.metadata.departed import DepartedBrokers
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import EMPTY_IMAGE, MetadataImage
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import FenceBrokerRecord, RegisterBrokerRecord, UnfenceBrokerRecord


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.image: MetadataImage = EMPTY_IMAGE
        self.departed = DepartedBrokers(lambda: self.now, 9.0)

    def commit(self, *records: Message) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(0, 0, 0)
        self.departed.committed(delta, self.image)


def test_a_fenced_broker_is_listed_for_a_session() -> None:
    world = World()
    for broker in (1, 2):
        world.commit(RegisterBrokerRecord(broker_id=broker, broker_epoch=broker, fenced=True))
        assert not world.departed.lately(broker)
        world.commit(UnfenceBrokerRecord(id=broker, epoch=broker))
        world.commit(FenceBrokerRecord(id=broker, epoch=broker))
    assert world.departed.lately(1) and world.departed.lately(2)
    world.now += 9.0
    assert not world.departed.lately(2)


def test_not_once_it_is_back_and_gone_in_one_change() -> None:
    world = World()
    world.commit(RegisterBrokerRecord(broker_id=2, broker_epoch=2, fenced=True))
    world.commit(UnfenceBrokerRecord(id=2, epoch=2), FenceBrokerRecord(id=2, epoch=2))
    assert not world.departed.lately(2)
    world.commit(UnfenceBrokerRecord(id=2, epoch=2))
    world.commit(FenceBrokerRecord(id=2, epoch=2))
    world.commit(RegisterBrokerRecord(broker_id=2, broker_epoch=5, fenced=True))
    assert world.departed.lately(2)
    world.commit(UnfenceBrokerRecord(id=2, epoch=5))
    assert not world.departed.lately(2)
