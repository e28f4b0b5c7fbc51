"""Constraints as in AgentRx (microsoft/AgentRx): synthesised, checked, logged, and read by a judge."""
