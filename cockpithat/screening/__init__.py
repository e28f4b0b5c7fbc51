"""Which passed sessions become suspicions: a score of their hazards, a threshold by false alarms."""
