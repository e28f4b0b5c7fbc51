"""A client for any OpenAI-compatible chat endpoint, with bounds on time, tokens and blame.

The panel (:mod:`cockpithat.panel`) and the channel scanner (:mod:`cockpithat.channels`) call it; nothing
here knows what the calls are about.
"""

from cockpithat.llm.accounting import CallRecord, Ledger
from cockpithat.llm.client import ChatClient, Completion, Schema
from cockpithat.llm.errors import LlmError
from cockpithat.llm.settings import LlmSettings, Message, Role, RoleSettings

__all__ = [
    "CallRecord",
    "ChatClient",
    "Completion",
    "Ledger",
    "LlmError",
    "LlmSettings",
    "Message",
    "Role",
    "RoleSettings",
    "Schema",
]
