"""Workers in processes of their own, and what happens to them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.stream.cockpit import Cluster, RunningWorker


@dataclass
class Fleet:
    """A number of workers that is kept up, as an orchestrator would."""

    cluster: Cluster
    folder: Path
    size: int = 2
    workers: list[RunningWorker] = field(default_factory=list)
    gone: list[RunningWorker] = field(default_factory=list)
    guests: list[RunningWorker] = field(default_factory=list)
    restarts: int = 0

    def start(self) -> Fleet:
        """Start the workers and wait until each is ready."""
        self.keep_up()
        for running in self.workers:
            wait_ready(running)
        return self

    def add(self) -> RunningWorker:
        """One more worker."""
        running = RunningWorker(
            self.cluster, self.folder, name=f"worker-{len(self.workers) + len(self.gone)}"
        )
        self.workers.append(running)
        return running

    def invite(self) -> RunningWorker:
        """One more worker, which will leave in good order and is not killed before."""
        self.size += 1
        guest = self.add()
        self.guests.append(guest)
        return guest

    def see_off(self, guest: RunningWorker) -> int | None:
        """A guest leaves; its exit code."""
        self.size -= 1
        return self.leave(guest)

    def keep_up(self) -> None:
        """Replace workers that ended by themselves, and bring the number up."""
        for running in [running for running in self.workers if running.process.poll() is not None]:
            self._lost(running)
            self.restarts += 1
        while len(self.workers) < self.size:
            self.add()

    def kill(self, chance: random.Random) -> None:
        """SIGKILL to one that is no guest, at whatever it is doing; another takes its place."""
        running = chance.choice([running for running in self.workers if running not in self.guests])
        running.kill()
        self._lost(running)
        self.keep_up()

    def leave(self, running: RunningWorker) -> int | None:
        """SIGTERM to one that is then not replaced. Its exit code, or ``None`` when it was gone already."""
        if running not in self.workers:
            return None
        self._lost(running)
        code, _ = running.terminate(60)
        return code

    def stop(self) -> list[int]:
        """End all workers in good order; their exit codes."""
        return [code for running in list(self.workers) if (code := self.leave(running)) is not None]

    def close(self) -> None:
        """End whatever still runs."""
        for running in self.logs():
            if running.process.poll() is None:
                running.kill()

    def logs(self) -> list[RunningWorker]:
        """All workers there were, for their logs."""
        return [*self.gone, *self.workers]

    def _lost(self, running: RunningWorker) -> None:
        self.workers.remove(running)
        self.gone.append(running)


def wait_ready(running: RunningWorker, timeout_s: float = 90.0) -> None:
    """Wait until a worker is ready. Raises ``AssertionError`` if it ends before, or is not in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            running.wait_ready(max(1.0, deadline - time.monotonic()))
        except OSError:  # its port answers no more: it has just ended, or is about to
            time.sleep(0.2)
        else:
            return


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens once the given share of the load is sent."""

    share: float
    what: str
    act: Callable[[], None]


def play(
    happenings: list[Happening],
    progress: Callable[[], float],
    between: Callable[[], None],
    *,
    timeout_s: float,
) -> None:
    """Let each happening come at its share of ``progress``; ``between`` runs all along."""
    deadline = time.monotonic() + timeout_s
    for happening in sorted(happenings, key=lambda happening: happening.share):
        while progress() < happening.share:
            assert time.monotonic() < deadline, f"{happening.what} not reached in {timeout_s:.0f} s"
            between()
        happening.act()
