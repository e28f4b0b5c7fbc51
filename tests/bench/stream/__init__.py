"""Benchmarks of the stream on a real Apache Kafka: one module a question."""
