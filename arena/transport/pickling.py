"""Control messages as bytes. They are pickled: they are rare, and the processes of one run trust each other."""

from __future__ import annotations

import pickle
from typing import Any, TypeVar

from arena.errors import ProtocolError
from arena.transport.endpoint import Bytes

Message = TypeVar("Message")


def pack(message: object) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: Bytes) -> Any:
    return pickle.loads(data)


def expect(kind: type[Message], received: tuple[int, Bytes]) -> Message:
    """Unpacks a received message and checks its type; raises ProtocolError if it has another type."""
    source, data = received
    message = unpack(data)
    if not isinstance(message, kind):
        raise ProtocolError(f"got {message} from address {source}, expected {kind.__name__}")
    return message
