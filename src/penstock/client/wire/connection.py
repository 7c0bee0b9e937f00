"""One blocking connection to one broker, for administration and readiness checks.

The first exchange is ApiVersions; from then on each request goes out in the highest version both sides speak. One
request is in flight at a time: the answer that comes must carry its correlation id, anything else is a broken peer.
After an error on the wire the connection is closed, because what would come next is unknown.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from types import TracebackType
from typing import Any, TypeVar

from penstock.client.errors import BadResponse, TimedOut, Unreachable, UnsupportedApi, raise_for
from penstock.model.errors import ErrorCode
from penstock.protocol.apis import API, ApiKey, ApiSpec
from penstock.protocol.codec import MalformedMessage, decode, decode_from
from penstock.protocol.declaration import Message
from penstock.protocol.frames import encode_request, response_header_version
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.header import ResponseHeader

Response = TypeVar("Response", bound=Message)

CLIENT_ID = "penstock"
RESPONSE_BYTES_MAX = 256 * 1024 * 1024
DEFAULT_TIMEOUT_SECONDS = 10.0

_SPECS: dict[type[Any], ApiSpec] = {spec.request: spec for spec in API.values()}


class Connection:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        client_id: str = CLIENT_ID,
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.timeout = timeout
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except TimeoutError as error:
            raise Unreachable(f"{self.address} does not accept the connection within {timeout:g} s") from error
        except OSError as error:
            raise Unreachable(f"cannot connect to {self.address}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def is_open(self) -> bool:
        """False once either side has closed it, as brokers do with connections that were idle for long."""
        try:
            self._socket.setblocking(False)
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def supports(self, key: ApiKey) -> bool:
        return self._common(API[key]) is not None

    def version(self, key: ApiKey) -> int:
        """The version requests of this kind are sent in."""
        spec = API[key]
        common = self._common(spec)
        if common is None:
            raise UnsupportedApi(f"{self.address} does not serve {spec.name}")
        return common

    def served(self, key: ApiKey) -> int:
        """The newest version that the broker knows, stable or not; -1: none."""
        return self.versions.get(key, (0, -1))[1]

    def request(
        self,
        message: Message,
        response: type[Response],
        *,
        timeout: float | None = None,
        newest: int | None = None,
        draft: int | None = None,
    ) -> Response:
        """Send, in no later version than `newest`, and wait. Error codes in the answer are the caller's to look at.

        With `draft`, in this version, which Kafka does not call stable yet: who asks has looked whether it is `served`.
        """
        spec = _SPECS[type(message)]
        if spec.response is not response:
            raise TypeError(f"{spec.name} is answered by {spec.response.__name__}, not {response.__name__}")
        version = self.version(ApiKey(spec.key)) if draft is None else draft
        answer: Response = self._exchange(spec, message, version if newest is None else min(version, newest), timeout)
        return answer

    def _greet(self) -> None:
        """ApiVersions in our highest version; a broker that lacks it answers in version 0 with what it has."""
        spec = API[ApiKey.API_VERSIONS]
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="0")
        answer: ApiVersionsResponse = self._exchange(spec, request, spec.max_version, None)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._exchange(spec, ApiVersionsRequest(), 0, None)
        raise_for(answer.error_code, None, f"{self.address} refuses ApiVersions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _common(self, spec: ApiSpec) -> int | None:
        low, high = self.versions.get(spec.key, (0, -1))
        version = min(high, spec.max_version)
        return version if version >= max(low, spec.min_version) else None

    def _exchange(self, spec: ApiSpec, message: Message, version: int, timeout: float | None) -> Any:
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(encode_request(message, version, correlation_id, self._client_id))
            frame = self._receive_frame(deadline)
        except TimeoutError as error:
            self.close()
            raise TimedOut(f"{self.address} does not answer {spec.name} within {seconds:g} s") from error
        except OSError as error:
            self.close()
            raise Unreachable(f"lost the connection to {self.address}: {error.strerror or error}") from error
        try:
            return self._decode(spec, version, correlation_id, frame)
        except MalformedMessage as error:
            self.close()
            raise BadResponse(f"{self.address} answers {spec.name} with bytes that are no Kafka response") from error

    def _decode(self, spec: ApiSpec, version: int, correlation_id: int, frame: bytes | memoryview) -> Any:
        header, position = decode_from(ResponseHeader, frame, response_header_version(spec.key, version), 0)
        if header.correlation_id != correlation_id:
            raise MalformedMessage(f"correlation id {header.correlation_id} instead of {correlation_id}")
        if spec.key == ApiKey.API_VERSIONS and _error_code(frame, position) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        return decode(spec.response, frame, version, position)

    def _receive_frame(self, deadline: float) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4, deadline))
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            self.close()
            raise BadResponse(f"{self.address} is not a Kafka broker: it announces a response of {size} bytes")
        return self._receive(size, deadline)

    def _receive(self, size: int, deadline: float) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            received = self._socket.recv_into(view)
            if not received:
                self.close()
                raise Unreachable(f"{self.address} closed the connection")
            view = view[received:]
        return bytes(buffer)


def _error_code(frame: bytes | memoryview, position: int) -> int:
    return int.from_bytes(frame[position : position + 2], signed=True)
