"""The bare server of `external_http.py`: an ASGI application that sends each body back, as `arena serve` is served."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn


async def echo(_: Any, receive: Any, send: Any) -> None:
    """Sends the body back."""
    body = (await receive())["body"]
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        echo,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
