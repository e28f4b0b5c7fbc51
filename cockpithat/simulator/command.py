"""``cockpithat simulate``: CockpitBench from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from cockpithat.simulator.benchmark import UNSEEN_NOTICE, SimulateSettings, simulate, write
from cockpithat.simulator.builder import NoScenarioError
from cockpithat.simulator.language import LANGUAGES


@click.command("simulate")
@click.option("--traces", default=212, show_default=True, type=click.IntRange(0), help="Failed sessions.")
@click.option("--passed", default=0, show_default=True, type=click.IntRange(0), help="Sessions that go well.")
@click.option(
    "--silent-hazards",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Sessions that leave a hazard and report success.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Same seed, same bytes.")
@click.option("--language", type=click.Choice(LANGUAGES), help="One language for all sessions.")
@click.option(
    "--families",
    default="published",
    show_default=True,
    type=click.Choice(["published", "unseen"]),
    help="The sixteen families, or the second hold-out set, which nothing is trained on.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for traces/, labels.jsonl and manifest.json.",
)
def simulate_command(
    traces: int,
    passed: int,
    silent_hazards: int,
    seed: int,
    language: str | None,
    families: Literal["published", "unseen"],
    out: Path,
) -> None:
    """Simulate cockpit sessions with known failures (CockpitBench)."""
    if out.is_dir() and any(out.iterdir()):
        raise click.ClickException(f"{out} is not empty; give a new folder so that nothing old is mixed in")
    settings = SimulateSettings(
        traces=traces,
        passed=passed,
        silent_hazards=silent_hazards,
        seed=seed,
        language=language,
        families=families,
    )
    try:
        manifest = write(simulate(settings), out, settings)
    except NoScenarioError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot write to {out}: {error.strerror or error}") from error
    kinds = manifest["counts"]["kind"]
    click.echo(f"{sum(kinds.values())} sessions in {out}: " + ", ".join(f"{n} {k}" for k, n in kinds.items()))
    if families == "unseen":
        click.echo(UNSEEN_NOTICE)
