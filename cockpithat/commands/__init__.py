"""What the command line does with files, as functions that know nothing of Kafka."""
