"""A proxy in front of an object store. It counts the requests, and delays each request like a
distant store."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from contextlib import suppress

REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.[01]\r$", re.MULTILINE)
BLOCK = 256 << 10


class Delay:
    """Runs in its own thread. Requires that a request arrives in one piece, like the requests of
    readers, which have no body."""

    def __init__(self, port: int, seconds: float):
        self.seconds, self._to, self.counts = seconds, port, Counter()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _end(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def take_counts(self) -> Counter:
        counts, self.counts = self.counts, Counter()
        return counts

    def _count(self, data: bytes) -> None:
        for method, target in REQUEST.findall(data):
            is_listing = method == b"GET" and (b"list-type=" in target or b"prefix=" in target)
            self.counts["LIST" if is_listing else method.decode()] += 1

    async def _serve(self, reader, writer) -> None:
        with suppress(OSError):
            from_store, to_store = await asyncio.open_connection("127.0.0.1", self._to)
            await asyncio.gather(self._pass(reader, to_store, is_request=True),
                                 self._pass(from_store, writer, is_request=False))

    async def _pass(self, source, sink, is_request: bool) -> None:
        with suppress(OSError):
            while data := await source.read(BLOCK):
                if is_request:
                    self._count(data)
                    await asyncio.sleep(self.seconds)
                sink.write(data)
                await sink.drain()
        with suppress(OSError):
            sink.close()
