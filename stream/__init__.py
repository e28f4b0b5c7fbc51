"""The stream: Kafka topics, the worker, its settings and the command line over the library."""
