"""Stands for :func:`stream.judging.judge` in a process of the pool: some traces are poison."""

from __future__ import annotations

import os
import signal
import time

from stream.judging import Judged


def judge(value: bytes | None, now_ms: int) -> Judged:
    """Kills its process, hangs, raises, or answers with the text as vehicle."""
    text = (value or b"").decode()
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "hang":
        time.sleep(600)
    if text == "raise":
        raise ValueError("a secret of the trace")
    return Judged(vehicle_id=text)
