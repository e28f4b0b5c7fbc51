"""The wire contract: every record the product reads or writes, as pydantic models.

Published as JSON Schema in ``schemas/`` (``python -m cockpithat.contract.schema --write``).
"""
