from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from registry_server import FakeRegistry, fake_registry


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as started:
        yield started


@pytest.fixture(scope="session")
def shop() -> Any:
    """Messages as protoc makes them: shop.proto imports money.proto and a well-known file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    pool = descriptor_pool.Default()
    field = descriptor_pb2.FieldDescriptorProto
    text, optional = field.TYPE_STRING, field.LABEL_OPTIONAL
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    amount = money.message_type.add(name="Money")
    amount.field.add(name="units", number=1, type=field.TYPE_INT64, label=optional)
    pool.Add(money)
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["money.proto", timestamp_pb2.DESCRIPTOR.name],
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="name", number=1, type=text, label=optional)
    order.field.add(name="price", number=2, type=field.TYPE_MESSAGE, type_name=".shop.Money", label=optional)
    order.field.add(
        name="at", number=3, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=optional
    )
    order.nested_type.add(name="Line").field.add(name="name", number=1, type=text, label=optional)
    file.message_type.add(name="Customer").field.add(name="name", number=1, type=text, label=optional)
    pool.Add(file)

    class Messages:
        Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
        Customer = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Customer"))
        Money = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Money"))

    Messages.Order.Line = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))
    return Messages


@pytest.fixture(scope="session")
def real_registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `penstock registry`, a process."""
    from penstock.local.ports import free_ports
    from penstock.local.web import LocalRegistry

    directory = str(tmp_path_factory.mktemp("registry"))
    node = LocalRegistry(directory, bootstrap=bootstrap, host="127.0.0.1", port=free_ports(1)[0])
    node.start()
    try:
        node.wait_ready()
        yield node.url
    finally:
        node.stop()
