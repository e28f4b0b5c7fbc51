"""``cockpithat screening``: how passed sessions are screened, from labelled ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cockpithat.screening.model import ScreeningCalibration

_RATES = (0, 5, 10, 20, 30, 50, 100, 1000)


@click.command("screening")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV with the columns session_id and hazardous (true or false): PATHS are then session files.",
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
def screening_command(
    paths: tuple[Path, ...], labels: Path | None, rules_file: Path | None, out: Path
) -> None:
    """Calibrate the screening of passed sessions on PATHS.

    PATHS are folders that `simulate` wrote, hold-out families left out, or with --labels session files of
    your own that somebody judged. Name the file in attribution.screening.calibration; the rate of false
    alarms is attribution.screening.false_alarms_per_1000.
    """
    from cockpithat.formats import FormatError
    from cockpithat.screening.fit import calibrate, calibrate_own

    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.absolute().parent} is no folder", param_hint="--out")
    others = 0
    try:
        if labels is None:
            calibration = calibrate(paths, rules_file)
        else:
            calibration, others = calibrate_own(paths, labels, rules_file)
    except (ValueError, FormatError) as error:
        raise click.ClickException(str(error)) from error
    out.write_text(calibration.model_dump_json(indent=1) + "\n", encoding="utf-8")
    click.echo(
        f"{calibration.safe_sessions} safe sessions, {len(calibration.safe_scores)} of which left a hazard "
        f"standing; {calibration.hazardous_sessions} hazardous ones"
        + (f"; {others} that passed have no label" if others else "")
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
