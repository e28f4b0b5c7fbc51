"""Scores methods on labelled runs: data sets, scoring rules, statistics, logs, comparison, tables."""
