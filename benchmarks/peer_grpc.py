"""A unary call of gRPC with the bytes of a hand-over: 64 bytes there, the payload back, between two Python processes.

peer_grpc.py BYTES CALLS      prints the median microseconds of a call
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_WARM = 50


def serve(nbytes: int, port: Any) -> None:
    """Answers every call with `nbytes` bytes."""
    payload = bytes(nbytes)
    server = grpc.server(ThreadPoolExecutor(1), options=_OPTIONS)
    answer = grpc.unary_unary_rpc_method_handler(lambda request, context: payload)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("link", {"step": answer}),))
    port.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def main(nbytes: int, calls: int) -> None:
    """Calls, and prints the median."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(nbytes, there), daemon=True)
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{here.recv()}", options=_OPTIONS) as channel:
        step, times = channel.unary_unary("/link/step"), []
        for _ in range(_WARM + calls):
            begin = time.perf_counter()
            assert len(step(bytes(64))) == nbytes
            times.append(1e6 * (time.perf_counter() - begin))
    server.terminate()
    print(statistics.median(times[_WARM:]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
