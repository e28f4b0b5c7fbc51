"""Reads ``candump -L`` logs, the text that SocketCAN's tools write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cantools.logreader import Parser, TimestampFormat

from cockpithat.contract.can import CanFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def read_candump(path: Path) -> Iterator[CanFrame]:
    """Frames of a log in its order; remote and error frames carry no data and are left out.

    Raises ``OSError`` if the file cannot be read and ``ValueError`` when a line has no absolute
    timestamp: frames without one cannot be placed beside a session.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for frame in Parser(lines):
            if frame.is_remote_frame:
                continue
            if frame.timestamp_format is not TimestampFormat.ABSOLUTE or not isinstance(
                frame.timestamp, datetime
            ):
                raise ValueError(f"{path}: frame without an absolute timestamp; record with 'candump -L'")
            yield CanFrame(
                ts=(frame.timestamp.astimezone(UTC) - _EPOCH) // _MILLISECOND,
                id=frame.frame_id,
                extended=frame.is_extended_frame,
                data=frame.data.hex(),
            )
