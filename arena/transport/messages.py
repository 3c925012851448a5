"""Messages between roles as bytes: pickled, since they are rare and the processes of one run trust each other."""

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
    """The message that was received, which must be of this kind.

    Raises:
        ProtocolError: it is another one.
    """
    source, data = received
    message = unpack(data)
    if not isinstance(message, kind):
        raise ProtocolError(f"address {source} said {message} where {kind.__name__} was due")
    return message
