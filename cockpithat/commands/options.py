"""Command-line options that more than one command has."""

from __future__ import annotations

import click

METHOD_OPTION = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the method, as its page names it; may be repeated.",
)
"""Options of a method, read by :func:`cockpithat.methods.registry.read_options`."""
