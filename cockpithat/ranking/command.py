"""``cockpithat train``: the ranker's weights from labelled runs."""

from __future__ import annotations

from pathlib import Path

import click

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command("train")
@click.option("--whowhen", multiple=True, type=_FOLDER, help="Folder of Who&When files; may be repeated.")
@click.option(
    "--cockpitbench",
    multiple=True,
    type=_FOLDER,
    help="Folder that `simulate` wrote; its hold-out families are left out. May be repeated.",
)
@click.option(
    "--version", "version", default="", help="Version written into the file; today's date by default."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Weights file to write."
)
def train_command(whowhen: tuple[Path, ...], cockpitbench: tuple[Path, ...], version: str, out: Path) -> None:
    """Train the ranker of the local analysts and write its weights, a readable JSON file."""
    try:
        from cockpithat.ranking.train import train, write
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise click.ClickException(
            "training needs numpy, using the weights does not; install `cockpithat-stream[train]`"
        ) from None
    try:
        weights = train(whowhen, cockpitbench, version=version)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    write(weights, out)
    for domain, told in weights.trained_on.items():
        click.echo(f"{domain}: {told}")
    click.echo(f"weights {weights.version} in {out}")
