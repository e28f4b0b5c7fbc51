"""Evidence detectors: each finds one kind of observable fact in a trace. One registry names them all."""
