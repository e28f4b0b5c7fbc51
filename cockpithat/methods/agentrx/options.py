"""Options of the constraint method, and the files they name."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field, model_validator

from cockpithat.methods.agentrx.constraints import Constraint, from_schemas
from cockpithat.methods.options import BOUNDS, ModelOptions

_MAX_POLICY = 40_000  # characters


class RxOptions(ModelOptions):
    """Options of the constraint method; numbers are reconstructed where AgentRx works step by step."""

    tool_schemas: Path | None = Field(
        None, description="JSON with tool schemas, {name: OpenAI function or JSON Schema}, or a list of them"
    )
    policy: Path | None = Field(None, description="Text of the policy that agents had to follow")
    dynamic: bool = Field(True, description="Ablation: dynamic constraints from task and prefix")
    static: bool = Field(True, description="Ablation: global constraints from tools and policy")
    window: int = Field(10, ge=1, description="Steps that share one synthesis of dynamic constraints")
    prefix_tokens: int = Field(3_000, ge=200, description="Prefix shown to that synthesis (approx-1)")
    window_tokens: int = Field(4_000, ge=200, description="Raw steps of one check (approx-1)")
    overview_tokens: int = Field(8_000, ge=200, description="Log shown to the final judge (approx-1)")

    @model_validator(mode="after")
    def _readable(self) -> RxOptions:
        _ = self.schemas, self.policy_text  # a wrong path should not wait for the first trace
        return self

    @cached_property
    def schemas(self) -> dict[str, Any]:
        """Tool schemas by name; empty without a file."""
        if self.tool_schemas is None:
            return {}
        try:
            data = orjson.loads(self.tool_schemas.read_bytes())
        except OSError as error:
            raise ValueError(f"{self.tool_schemas}: {error.strerror or 'cannot be read'}") from None
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{self.tool_schemas}: not JSON ({error})") from None
        if isinstance(data, list):
            named = [(_name(item), item) for item in data if isinstance(item, dict)]
            data = {name: item for name, item in named if name}
        if not isinstance(data, dict):
            raise ValueError(f"{self.tool_schemas}: holds no tool schemas")
        return data

    @cached_property
    def policy_text(self) -> str:
        """The policy; empty without a file."""
        if self.policy is None:
            return ""
        try:
            return self.policy.read_text(encoding="utf-8")[:_MAX_POLICY]
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.policy}: cannot be read as text ({error})") from None

    @property
    def constraints(self) -> list[Constraint]:
        """Global constraints that the schemas imply."""
        return from_schemas(self.schemas) if self.static else []

    def identity(self) -> dict[str, Any]:
        """For the digest: files count by content and not by name."""
        chosen = self.model_dump(mode="json", exclude={*BOUNDS, "tool_schemas", "policy"})
        return {**chosen, "tool_schemas": self.schemas, "policy": self.policy_text}


def _name(item: dict[str, Any]) -> str:
    inner = item.get("function")
    name = inner.get("name") if isinstance(inner, dict) else item.get("name")
    return name if isinstance(name, str) else ""
