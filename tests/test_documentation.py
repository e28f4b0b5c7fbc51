"""What the documentation tells people to type exists, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from cockpithat.bench.command import bench
from cockpithat.ranking.command import train_command
from cockpithat.screening.command import screening_command
from cockpithat.simulator.command import simulate_command
from stream.cli import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
_COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?cockpithat ([^\n#]*)|`cockpithat ([^`\n]+)`", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)")


def all_options(command: click.Command) -> set[str]:
    own = {option for param in command.params for option in param.opts}
    if isinstance(command, click.Group):
        own = own.union(*(all_options(child) for child in command.commands.values()))
    return own


def options() -> dict[str, set[str]]:
    """Options by command; those of a group are those of all its commands."""
    known = {name: all_options(command) for name, command in cli.commands.items()}
    # These parse their arguments themselves, so that they cost nothing when others start.
    return {
        **known,
        "bench": all_options(bench),
        "simulate": all_options(simulate_command),
        "train": all_options(train_command),
        "screening": all_options(screening_command),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_a_page_exist(page: Path) -> None:
    known = options()
    wrong = []
    for match in _COMMAND.finditer(page.read_text(encoding="utf-8")):
        words = (match[1] or match[2]).split()
        names = [word for word in words if not word.startswith("-")]
        if not names or not names[0].isidentifier() or names[0].isupper():
            continue
        if names[0] not in cli.commands:
            wrong.append(match[0])
            continue
        used = {word.partition("=")[0].rstrip(".,;:") for word in words if word.startswith("--")}
        wrong += [f"{names[0]} {option}" for option in used - known[names[0]] - {"--help"}]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_command_has_its_place_in_the_reference() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^## (.+)$", reference, re.MULTILINE))
    assert [name for name in cli.commands if not re.search(rf"\b{name}\b", headings)] == []
