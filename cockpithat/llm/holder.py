"""The client a method calls with: one it was given, or one of its own for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from cockpithat.llm.accounting import CallRecord
from cockpithat.llm.client import ChatClient
from cockpithat.llm.settings import LlmSettings, Role


class ClientHolder:
    """Opens a client when first needed. ``observe`` is told of every call of clients opened from then on."""

    def __init__(self, settings: LlmSettings, given: ChatClient | None) -> None:
        self.observe: Callable[[CallRecord], None] | None = None
        self._settings = settings
        self._client, self._owned = given, given is None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> ChatClient:
        """The client of the running event loop: connections cannot move to another one."""
        loop = asyncio.get_running_loop()
        if self._client is None or (self._owned and self._loop is not loop):
            self._client, self._loop = ChatClient(self._settings, observe=self.observe), loop
        return self._client

    def circuits(self, roles: Iterable[Role]) -> dict[Role, bool]:
        """Whether each role's endpoint is left alone after failures."""
        return {role: self._client is not None and self._client.circuit_open(role) for role in roles}

    async def close(self) -> None:
        """Close the connections, if they were opened here."""
        if self._client is not None and self._owned:
            await self._client.close()
            self._client = None
