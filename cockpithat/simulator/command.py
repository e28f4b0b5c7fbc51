"""``cockpithat simulate``: CockpitBench from the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cockpithat.simulator.benchmark import UNSEEN_NOTICE, SimulateSettings, simulate, write
from cockpithat.simulator.builder import NoScenarioError
from cockpithat.simulator.language import LANGUAGES

Result = TypeVar("Result")

_OPTIONS = (
    click.option("--traces", default=212, show_default=True, type=click.IntRange(0), help="Failed sessions."),
    click.option(
        "--passed", default=0, show_default=True, type=click.IntRange(0), help="Sessions that go well."
    ),
    click.option(
        "--silent-hazards",
        default=0,
        show_default=True,
        type=click.IntRange(0),
        help="Sessions that leave a hazard and report success.",
    ),
    click.option(
        "--seed", default=0, show_default=True, type=click.IntRange(0), help="Same seed, same sessions."
    ),
    click.option("--language", type=click.Choice(LANGUAGES), help="One language for all sessions."),
    click.option(
        "--families",
        default="published",
        show_default=True,
        type=click.Choice(["published", "unseen"]),
        help="The sixteen families, or the second hold-out set, which nothing is trained on.",
    ),
)


def simulated(command: Callable[..., Result]) -> Callable[..., Result]:
    """Adds the options that say what is simulated; the command gets them as ``wanted``."""

    @functools.wraps(command)
    def with_settings(**given: Any) -> Result:
        chosen = {name: given.pop(name) for name in SimulateSettings.model_fields if name in given}
        return command(wanted=SimulateSettings(**chosen), **given)

    for option in reversed(_OPTIONS):
        option(with_settings)
    return with_settings


@click.command("simulate")
@simulated
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for traces/, labels.jsonl and manifest.json.",
)
def simulate_command(wanted: SimulateSettings, out: Path) -> None:
    """Simulate cockpit sessions with known failures (CockpitBench)."""
    if out.is_dir() and any(out.iterdir()):
        raise click.ClickException(f"{out} is not empty; give a new folder so that nothing old is mixed in")
    try:
        manifest = write(simulate(wanted), out, wanted)
    except NoScenarioError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot write to {out}: {error.strerror or error}") from error
    kinds = manifest["counts"]["kind"]
    click.echo(f"{sum(kinds.values())} sessions in {out}: " + ", ".join(f"{n} {k}" for k, n in kinds.items()))
    if wanted.families == "unseen":
        click.echo(UNSEEN_NOTICE)
