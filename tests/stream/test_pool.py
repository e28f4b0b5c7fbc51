"""The pool never blocks whoever offers work, and reports nothing of a revoked partition."""

from __future__ import annotations

import asyncio

from stream.pool import BoundedPool


def never(error: BaseException) -> None:
    raise AssertionError(error)


async def test_at_most_size_jobs_run_and_offering_never_waits() -> None:
    running = most = 0
    gate = asyncio.Event()

    async def work(job: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return job * 10

    done: list[int] = []
    pool = BoundedPool(work, size=3, queue_size=5, failed=never)
    for job in range(20):
        pool.offer(0, job, done.append)
    await asyncio.sleep(0)
    assert (pool.active, pool.waiting, pool.full) == (3, 17, True)
    gate.set()
    await asyncio.sleep(0.05)
    assert done == [job * 10 for job in range(20)]
    assert most == 3


async def test_room_is_signalled_once_the_queue_is_half_empty() -> None:
    gates = [asyncio.Event() for _ in range(10)]
    room: list[int] = []

    async def work(job: int) -> None:
        await gates[job].wait()

    pool = BoundedPool(work, size=1, queue_size=4, failed=never, has_room=lambda: room.append(pool.waiting))
    for job in range(10):
        pool.offer(0, job, lambda _: None)
    for gate in gates:
        gate.set()
        await asyncio.sleep(0.01)
    assert room == [2]


async def test_a_revoked_partition_reports_nothing_and_others_go_on() -> None:
    gate = asyncio.Event()

    async def work(job: str) -> str:
        await gate.wait()
        return job

    done: list[str] = []
    pool = BoundedPool(work, size=2, queue_size=10, failed=never)
    for job in ("a1", "b1", "a2", "b2"):
        pool.offer(0 if job.startswith("a") else 1, job, done.append)
    await asyncio.sleep(0)
    assert pool.cancel(0) == 2
    gate.set()
    await asyncio.sleep(0.05)
    assert done == ["b1", "b2"]
    assert (pool.active, pool.waiting) == (0, 0)


async def test_an_error_of_the_work_is_not_swallowed() -> None:
    async def work(_: int) -> None:
        raise ValueError("broken")

    errors: list[BaseException] = []
    pool = BoundedPool(work, size=1, queue_size=1, failed=errors.append)
    pool.offer(0, 1, lambda _: None)
    await asyncio.sleep(0.02)
    assert [str(error) for error in errors] == ["broken"]
