"""A real Apache Kafka for the tests.

Taken in this order: the brokers of ``KAFKA_BOOTSTRAP_SERVERS``; a container, if a Docker daemon answers;
else Kafka's own jars, copied by Maven after ``tests/pom.xml``, as one KRaft process on the local JVM.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_ROOT = Path(__file__).resolve().parents[2]
_POM = _ROOT / "tests" / "pom.xml"
_IMAGE = "apache/kafka:4.1.1"
_START_SECONDS = 60.0
_QUIET = 2  # librdkafka's log level "critical": what matters reaches the test as an error

SASL_USER = "worker"
SASL_PASSWORD = "not-a-secret"


class UnavailableError(Exception):
    """No broker can be had this way; the message says what is missing."""


@dataclass(frozen=True)
class Secured:
    """A second listener of the same broker: TLS and SASL PLAIN, certificate for ``localhost``."""

    bootstrap_servers: str
    ca: Path
    username: str = SASL_USER
    password: str = SASL_PASSWORD


class KafkaBroker:
    """A running broker: where it is, and the helpers that tests need."""

    secured: Secured | None = None

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    # -- what a backend may be able to do

    def kill(self) -> None:
        """End the broker without a goodbye."""
        pytest.skip("this broker is not ours to kill")

    def resume(self) -> None:
        """Start it again, same port and data."""
        pytest.skip("this broker is not ours to start")

    def restart(self) -> None:
        """Kill and start again."""
        self.kill()
        self.resume()

    def close(self) -> None:
        """Stop what was started here."""

    def tail(self) -> str:
        """The end of the broker's log, for a failed test."""
        return ""

    # -- helpers

    @property
    def admin(self) -> AdminClient:
        """A fresh admin client."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": _QUIET})

    def _answers(self) -> bool:
        """Whether the broker takes requests. The port is tried first: librdkafka logs each refusal."""
        host, _, port = self.bootstrap_servers.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return bool(self.admin.list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False

    @staticmethod
    def unique(name: str) -> str:
        """A topic or group name that no other test has."""
        return f"{name}.{uuid.uuid4().hex[:8]}"

    def create_topics(
        self, *topics: str, partitions: int = 4, config: Mapping[str, str] | None = None
    ) -> None:
        """Create topics and wait until they can be used."""
        new = [
            NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
            for topic in topics
        ]
        admin = self.admin
        for future in admin.create_topics(new, operation_timeout=20).values():
            future.result(timeout=30)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            known = admin.list_topics(timeout=10).topics
            if all(topic in known and len(known[topic].partitions) == partitions for topic in topics):
                return
            time.sleep(0.05)
        raise AssertionError(f"topics {topics} did not appear")

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int = -1,
    ) -> None:
        """Write ``(key, value)`` pairs with the Java partitioner and wait for their delivery."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": _QUIET,
                "partitioner": "murmur2_random",
                "linger.ms": 2,
            }
        )
        failed: list[Any] = []

        def delivered(error: Any, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for key, value in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        partition=partition,
                        headers=list(headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(30) == 0, f"not delivered to {topic} within 30 s"
        assert not failed, failed[0]

    def read(self, topic: str, *, timeout: float = 20.0) -> list[Message]:
        """All committed records of a topic up to its end now, in partition and offset order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "log_level": _QUIET,
                "group.id": self.unique("read"),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            metadata = consumer.list_topics(topic, timeout=10).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            waiting = set(metadata.partitions)
            consumer.assign([TopicPartition(topic, partition, 0) for partition in waiting])
            records: list[Message] = []
            deadline = time.monotonic() + timeout
            while waiting:
                assert time.monotonic() < deadline, f"{topic} not read within {timeout} s"
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if (error := message.error()) is None:
                    records.append(message)
                elif error.name() == "_PARTITION_EOF":
                    waiting.discard(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return sorted(records, key=lambda record: (record.partition(), record.offset()))

    def wait_for(self, topic: str, count: int, *, timeout: float = 30.0) -> list[Message]:
        """Read until a topic has at least ``count`` records."""
        deadline = time.monotonic() + timeout
        while True:
            records = self.read(topic)
            if len(records) >= count:
                return records
            assert time.monotonic() < deadline, f"{topic}: {len(records)} of {count} records in {timeout} s"
            time.sleep(0.2)


class LocalKafka(KafkaBroker):
    """One KRaft process, broker and controller, on the local JVM."""

    def __init__(self) -> None:
        self._java = _tool("java")
        jars = _jars()
        self._folder = Path(tempfile.mkdtemp(prefix="cockpithat-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self._folder / "broker.log"
        plain, tls, controller = free_ports(3)
        super().__init__(f"127.0.0.1:{plain}")
        self.secured = Secured(f"localhost:{tls}", self._folder / "ca.pem")
        self._command = [
            self._java,
            "-Xms128m",
            "-Xmx400m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}",
            "-cp",
            f"{jars}/*",
        ]
        try:
            self._certificate()
            self._configure(plain, tls, controller)
            self._format()
            self.resume()
        except BaseException:
            self.close()
            raise

    def _certificate(self) -> None:
        keytool = shutil.which("keytool") or str(Path(self._java).resolve().with_name("keytool"))
        store = ["-keystore", str(self._folder / "broker.p12"), "-storetype", "PKCS12"]
        store += ["-storepass", SASL_PASSWORD, "-alias", "broker"]
        key = ["-keyalg", "EC", "-groupname", "secp256r1", "-validity", "30"]
        name = ["-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1"]
        _run([keytool, "-genkeypair", *store, *key, *name])
        _run([keytool, "-exportcert", "-rfc", *store, "-file", str(self._folder / "ca.pem")])

    def _configure(self, plain: int, tls: int, controller: int) -> None:
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{SASL_USER}="{SASL_PASSWORD}";'
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{tls},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://localhost:{tls}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_ssl.ssl.keystore.type": "PKCS12",
            "listener.name.sasl_ssl.ssl.keystore.location": str(self._folder / "broker.p12"),
            "listener.name.sasl_ssl.ssl.keystore.password": SASL_PASSWORD,
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # A killed broker registers again only when its old session has run out (default 9 s).
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            # The default of 128 MB does not fit a small heap.
            "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
            "log.cleaner.backoff.ms": "500",
        }
        (self._folder / "server.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8"
        )
        (self._folder / "log4j2.properties").write_text(
            "status = error\n"
            "appender.console.type = Console\nappender.console.name = console\n"
            "appender.console.layout.type = PatternLayout\n"
            "appender.console.layout.pattern = %d %p %c{1} %m%n\n"
            "rootLogger.level = warn\nrootLogger.appenderRef.console.ref = console\n",
            encoding="utf-8",
        )

    def _format(self) -> None:
        cluster = "Y29ja3BpdGhhdC10ZXN0cw"  # any 16 bytes, base64
        config = str(self._folder / "server.properties")
        _run([*self._command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", config])

    def resume(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._folder / "server.properties")],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal reaches pytest first
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise UnavailableError(f"Kafka ended at start:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise UnavailableError(f"Kafka not up in {_START_SECONDS:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def close(self) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)

    def tail(self) -> str:
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])


class DockerKafka(KafkaBroker):
    """The official image in a container, through testcontainers."""

    def __init__(self) -> None:
        try:
            import docker

            docker.from_env(timeout=5).ping()
        except Exception as error:
            raise UnavailableError(f"no Docker daemon answers ({type(error).__name__})") from None
        from testcontainers.core.container import DockerContainer

        (port,) = free_ports(1)
        super().__init__(f"127.0.0.1:{port}")
        environment = {
            "KAFKA_NODE_ID": "1",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_LISTENERS": f"PLAINTEXT://:{port},CONTROLLER://:9093",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
            "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
            "KAFKA_NUM_PARTITIONS": "4",
        }
        self._container = DockerContainer(_IMAGE).with_bind_ports(port, port)
        for name, value in environment.items():
            self._container.with_env(name, value)
        self._container.start()
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > deadline:
                raise UnavailableError(f"the container {_IMAGE} is not up:\n{self.tail()}")
            time.sleep(0.2)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def resume(self) -> None:
        self._container.get_wrapped_container().start()
        self._wait()

    def close(self) -> None:
        self._container.stop()

    def tail(self) -> str:
        out, err = self._container.get_logs()
        return (out + err).decode(errors="replace")[-4_000:]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise UnavailableError(f"no {name} on the PATH")
    return path


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if result.returncode != 0:
        raise UnavailableError(f"{Path(command[0]).name} failed:\n{(result.stdout + result.stderr)[-2_000:]}")


def _jars() -> Path:
    """Kafka's jars, in ``.cache/`` of the checkout; copied once for each version of ``tests/pom.xml``."""
    version = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    cache = _ROOT / ".cache" / "kafka"
    final = cache / version
    if not final.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=version, dir=cache))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
        _run([_tool("mvn"), "-q", "-B", "-f", str(_POM), *goal])
        try:
            partial.rename(final)  # at once: another run never sees half of it
        except OSError:
            shutil.rmtree(partial)  # another run was first
    return final


def start() -> KafkaBroker:
    """The first broker that can be had. Raises :class:`UnavailableError` saying what was tried."""
    if servers := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        return KafkaBroker(servers)
    tried: list[str] = []
    backends: tuple[Callable[[], KafkaBroker], ...] = (DockerKafka, LocalKafka)
    for backend in backends:
        try:
            return backend()
        except UnavailableError as error:
            tried.append(str(error))
    raise UnavailableError("no Kafka for the tests: KAFKA_BOOTSTRAP_SERVERS is not set; " + "; ".join(tried))


def _missing(what: str) -> NoReturn:
    from tests.conftest import missing

    missing(what)


@pytest.fixture(scope="session")
def kafka_session() -> Iterator[KafkaBroker]:
    """The broker that all tests share."""
    try:
        broker = start()
    except UnavailableError as error:
        _missing(str(error))
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def kafka(kafka_session: KafkaBroker, request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """The shared broker; its log's end is shown when the test fails."""
    failed_before = request.session.testsfailed
    yield kafka_session
    if request.session.testsfailed > failed_before and (tail := kafka_session.tail()):
        print(f"\n--- end of the broker's log ---\n{tail}")


@pytest.fixture
def chaos_kafka() -> Iterator[KafkaBroker]:
    """A broker of the test's own, to kill and restart."""
    try:
        broker = start()
    except UnavailableError as error:
        _missing(str(error))
    try:
        yield broker
    finally:
        broker.close()


@pytest.fixture
def secured_kafka(kafka: KafkaBroker) -> Secured:
    """The shared broker's listener with TLS and SASL."""
    if kafka.secured is None:
        pytest.skip("this broker has no listener with TLS and SASL of ours")
    return kafka.secured
