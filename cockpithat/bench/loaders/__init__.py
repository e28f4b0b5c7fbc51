"""One module a data set."""
