"""The role ``decode``: CAN frames become vehicle snapshots on the snapshots topic.

A record of frames gives one list of delta snapshots, written to the partition of the same number, so a
vehicle's snapshots stay in order and beside its events. What a decoder remembers is each leaf's last value,
to pass on changes only; a new owner has forgotten it and passes each leaf on once more, which changes no
state.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from cockpithat.can import CanDecoder, CanMappingError, load_mapping
from cockpithat.contract.can import CanFrames
from cockpithat.contract.deadletter import DeadLetterReason
from stream.context import WorkerContext
from stream.decoding import Decoder, UndecodableError
from stream.partitioning import KeyCheck
from stream.records import Output, Record
from stream.roles.base import PartitionedRole, Unit
from stream.settings import ConfigurationError

NAME = "decode"
_MAX_RECORD_BYTES = 8 * 1024 * 1024


class DecodeUnit(Unit):
    """One partition of frames, with what its vehicles last said."""

    stage = "decode"

    def __init__(self, role: Decode, partition: int) -> None:
        self._role = role
        self._can = role.decoder()
        super().__init__(role.context, role.topic, partition)

    def read_back_from(self) -> Sequence[str]:
        """Snapshots and dead letters, whose marks tell which records of frames are done."""
        topics = self.context.settings.topics
        return (topics.vehicle_snapshots, topics.dlq(topics.can_frames))

    def process(self, record: Record) -> None:
        """Decode a record's frames and publish what changed; a bad record is dead-lettered."""
        self.hold.passed(record.offset, record.timestamp)
        if self.ledger.is_done(record.offset):
            return
        ticket = self.hold.acquire(record.offset)
        try:
            batch = self._role.records.decode(record.value)
            if record.key is None or record.key.decode("utf-8", "replace") != batch.vehicle_id:
                raise UndecodableError(
                    DeadLetterReason.WRONG_KEY, "the key is not the vehicle_id of the frames; key by vehicle"
                )
        except UndecodableError as error:
            self.context.metrics.can_frames.labels("dead_lettered").inc()
            self.put_aside(record, error.reason, error.detail, held=ticket)
            return
        self.context.guard.good()
        self._role.keys.check(record)
        before = self._can.counts.decoded
        snapshots = self._can.decode(batch.vehicle_id, sorted(batch.frames, key=lambda frame: frame.ts))
        decoded = self._can.counts.decoded - before
        self.context.metrics.can_frames.labels("decoded").inc(decoded)
        self.context.metrics.can_frames.labels("skipped").inc(len(batch.frames) - decoded)
        if not snapshots:
            self.hold.release(ticket)
            return
        topic = self.context.settings.topics.vehicle_snapshots
        body = ",".join(snapshot.model_dump_json() for snapshot in snapshots)
        mark = self.ledger.mark(
            f"can:{record.topic}:{record.partition}:{record.offset}", record.offset, last=True
        )
        partition = self.context.partitions.beside(topic, self.partition)
        self.submit([(Output(topic, partition, record.key, f"[{body}]".encode()), mark)], held=ticket)


class Decode(PartitionedRole[DecodeUnit]):
    """See the module. Raises :class:`ConfigurationError` when DBC or mapping cannot be used."""

    name = NAME

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        settings = context.settings.can
        self.topic = context.settings.topics.can_frames
        self.records: Decoder[CanFrames] = Decoder(TypeAdapter(CanFrames), max_bytes=_MAX_RECORD_BYTES)
        self.keys = KeyCheck(
            context.partitions, context.metrics, context.health, probe="can_key_partitioning"
        )
        if settings.dbc is None or settings.mapping is None:
            raise ConfigurationError(
                "the role decode needs can.dbc and can.mapping (COCKPITHAT_CAN__DBC, COCKPITHAT_CAN__MAPPING)"
            )
        try:
            self._template = CanDecoder.from_files(
                settings.dbc, load_mapping(settings.mapping), settings.vss_version
            )
        except CanMappingError as error:
            raise ConfigurationError(str(error)) from error

    def decoder(self) -> CanDecoder:
        """A decoder that remembers no vehicle yet."""
        return self._template.fresh()

    def unit(self, partition: int) -> DecodeUnit:
        """See :class:`PartitionedRole`."""
        return DecodeUnit(self, partition)
