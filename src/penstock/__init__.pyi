"""What type checkers see of the names that are imported when they are used."""

from penstock.client.errors import ClientError as ClientError
from penstock.client.librdkafka.async_consumer import AsyncConsumer as AsyncConsumer
from penstock.client.librdkafka.async_producer import AsyncProducer as AsyncProducer
from penstock.client.librdkafka.consumer import Consumer as Consumer
from penstock.client.librdkafka.dead_letters import DeadLetter as DeadLetter
from penstock.client.librdkafka.delivery import Delivery as Delivery
from penstock.client.librdkafka.delivery import Sent as Sent
from penstock.client.librdkafka.partitioners import partition_of as partition_of
from penstock.client.librdkafka.producer import Producer as Producer
from penstock.client.librdkafka.record import Batch as Batch
from penstock.client.librdkafka.record import Record as Record
from penstock.client.registry import Registry as Registry
from penstock.client.wire.admin import Acl as Acl
from penstock.client.wire.admin import AclFilter as AclFilter
from penstock.client.wire.admin import Admin as Admin
from penstock.client.wire.admin import ResourceType as ResourceType
from penstock.client.wire.share.async_consumer import AsyncShareConsumer as AsyncShareConsumer
from penstock.client.wire.share.consumer import ShareConsumer as ShareConsumer
from penstock.client.wire.share.records import ShareRecord as ShareRecord
from penstock.model.ids import TopicPartition as TopicPartition
from penstock.serializers import Avro as Avro
from penstock.serializers import Bytes as Bytes
from penstock.serializers import Float32 as Float32
from penstock.serializers import Float64 as Float64
from penstock.serializers import Int32 as Int32
from penstock.serializers import Int64 as Int64
from penstock.serializers import Json as Json
from penstock.serializers import JsonSchema as JsonSchema
from penstock.serializers import Protobuf as Protobuf
from penstock.serializers import String as String
from penstock.serializers import Uuid as Uuid

__version__: str
