"""The browser, for the page's tests."""

from tests.support.browser import browser

__all__ = ["browser"]
