"""Vehicle state: the signal catalogue, the log of snapshots, and their alignment with steps."""
