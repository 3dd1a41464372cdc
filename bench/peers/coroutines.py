"""The part that drivers of asyncio queues share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from bench.peers.asked import SETTLE_SECONDS, WARM_UP, Asked, Progress, gap, tell

type Run = Callable[[], Awaitable[None]]


class Peer(Protocol):
    """One queue."""

    async def open(self, url: str) -> None:
        """A client with a connection."""

    async def install(self) -> None:
        """Its own tables."""

    async def enqueue(self) -> None:
        """One job, committed by itself: the client's ordinary call."""

    async def work(self, url: str, run: Run, settings: dict[str, Any]) -> None:
        """Its real worker, for ever; a job is `run`."""


async def serve(peer: Peer) -> None:
    """Do what the command line asks."""
    asked = Asked.from_arguments()
    await peer.open(asked.url)
    match asked.what:
        case "install":
            await peer.install()
        case "enqueue":
            await peer.enqueue()
            began = time.perf_counter()
            for _ in range(asked.count):
                await peer.enqueue()
            tell(seconds=time.perf_counter() - began)
        case "work":
            await _work(peer, asked)
        case "pickup":
            await _pickup(peer, asked)


async def _work(peer: Peer, asked: Asked) -> None:
    progress = Progress(asked.count)

    async def run() -> None:
        progress.ran()
        if asked.job_seconds:
            await asyncio.sleep(asked.job_seconds)

    await peer.work(asked.url, run, asked.settings or {})


async def _pickup(peer: Peer, asked: Asked) -> None:
    began, took = 0.0, []
    picked_up = asyncio.Event()

    async def run() -> None:
        took.append(time.perf_counter() - began)
        picked_up.set()

    worker = asyncio.create_task(peer.work(asked.url, run, asked.settings or {}))
    await asyncio.sleep(SETTLE_SECONDS)
    for _ in range(WARM_UP + asked.count):
        picked_up.clear()
        began = time.perf_counter()
        await peer.enqueue()
        await picked_up.wait()
        await asyncio.sleep(gap())
    tell(seconds=took[WARM_UP:])
    worker.cancel()
