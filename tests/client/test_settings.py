"""Our list of librdkafka's settings is librdkafka's."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from bench.rdkafka import library_path

from penstock.client.librdkafka.properties import BOTH, CONSUMER_ONLY, PRODUCER_ONLY

# Of the C API, with no meaning in Python.
OF_C = {
    *("background_event_cb", "closesocket_cb", "connect_cb", "consume_cb", "default_topic_conf", "dr_cb", "dr_msg_cb"),
    *("enabled_events", "interceptors", "internal.termination.signal", "log_cb", "msg_order_cmp", "offset_commit_cb"),
    *("opaque", "open_cb", "partitioner_cb", "rebalance_cb", "resolve_cb", "socket_cb", "ssl.certificate.verify_cb"),
    *("ssl_ca", "ssl_certificate", "ssl_engine_callback_data", "ssl_key"),
}


def test_every_setting_of_librdkafka_is_known_and_who_heeds_it(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    c = ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(c.fopen(str(path).encode(), b"w"))
    ctypes.CDLL(library_path()).rd_kafka_conf_properties_show(file)
    c.fclose(file)
    heeded: dict[str, set[str]] = {}
    for name, scope in re.findall(r"^(\S+) +\| +([CP*]) +\|", path.read_text(), re.MULTILINE):
        heeded.setdefault(name, set()).add(scope)
    assert len(heeded) > 150
    for name, scopes in heeded.items():
        if name not in OF_C:
            home = BOTH if "*" in scopes or len(scopes) == 2 else CONSUMER_ONLY if scopes == {"C"} else PRODUCER_ONLY
            assert name in home, name
