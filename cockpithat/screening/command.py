"""``cockpithat screening``: how passed sessions are screened, from labelled ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cockpithat.screening.model import ScreeningCalibration

_RATES = (0, 5, 10, 20, 30, 50, 100, 1000)


@click.command("screening")
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Hazard rules in place of the product's own.",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Calibration file to write."
)
def screening_command(folders: tuple[Path, ...], rules_file: Path | None, out: Path) -> None:
    """Calibrate the screening of passed sessions on FOLDERS that `simulate` wrote.

    Hold-out families are left out. Name the file in attribution.screening.calibration; the rate of false
    alarms is attribution.screening.false_alarms_per_1000.
    """
    from cockpithat.screening.fit import calibrate

    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.absolute().parent} is no folder", param_hint="--out")
    try:
        calibration = calibrate(folders, rules_file)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    out.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
    click.echo(
        f"{calibration.safe_sessions} safe sessions, {len(calibration.safe_scores)} of which left a hazard "
        f"standing; {calibration.hazardous_sessions} hazardous ones"
    )
    for rate in _RATES:
        click.echo(f"{rate:5} false alarms per 1,000: {_told(calibration, rate)}")
    click.echo(f"calibration in {out}")


def _told(calibration: ScreeningCalibration, rate: float) -> str:
    threshold = calibration.threshold(rate)
    if threshold < 0:
        return "whenever a hazard stands"
    if threshold <= 1:
        return f"score above {threshold:.3f}"
    needed = calibration.sessions_needed(rate)
    return "never" if needed is None else f"never; that takes at least {needed} safe sessions"
