"""The one place the product's version is written."""

__version__ = "0.1.0"
