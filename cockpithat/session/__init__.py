"""From session events to traces: the session engine, a pure state machine per input partition."""
