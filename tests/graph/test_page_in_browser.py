"""The page in a real browser: what a person sees, clicks and types."""

from __future__ import annotations

import re
from pathlib import Path

from cockpithat.contract.trace import Trace
from cockpithat.formats.registry import load
from cockpithat.graph.render import to_html
from tests.graph.pages import cockpit_trace, hostile_trace, verdict
from tests.support.browser import Browser


def _write(folder: Path, html: str) -> Path:
    page = folder / "page.html"
    page.write_text(html, encoding="utf-8")
    return page


def _driven(trace: Trace, script: str) -> str:
    """The page with a test script behind its own, which the page's policy would otherwise refuse."""
    html = to_html(trace, verdict() if trace.session_id == "s1" else None)
    html = re.sub(r"script-src 'sha256-[^']+'", "script-src 'unsafe-inline'", html)
    return html.replace("</body>", f"<script>{script}</script></body>")


def _detail(dom: str) -> str:
    found = re.search(r'<aside class="detail".*?</aside>', dom, re.DOTALL)
    assert found
    return re.sub(r"<[^>]+>", " ", found[0])


_PRESS = """
const press = (key) =>
  document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
"""


def test_it_opens_on_the_verdict_with_its_reasons(tmp_path: Path, browser: Browser) -> None:
    dom = browser.dom(_write(tmp_path, to_html(cockpit_trace(), verdict())))
    detail = _detail(dom)
    for said in (
        "Step 2 · VehicleAgent",
        "Root cause: VehicleAgent, safety safeguard failure",
        "IsOpen false to true at 32 km/h",
        "Calls open_door",
        "Vehicle.Cabin.Door.Row1.DriverSide.IsOpen",
        "Vehicle.Speed  stale",
        "Director calls VehicleAgent",
        "Needed by",
    ):
        assert said in re.sub(r" {2,}", "  ", detail), said
    assert re.search(r'id="step-2"[^>]*aria-selected="true"', dom)


def test_an_address_with_a_step_opens_on_it(tmp_path: Path, browser: Browser) -> None:
    page = _write(tmp_path, to_html(cockpit_trace(), verdict()))
    assert "Step 4 · VehicleAgent" in _detail(browser.dom(page.as_uri() + "#step-4"))


def test_a_click_lights_the_steps_own_edges_and_no_others(tmp_path: Path, browser: Browser) -> None:
    script = "document.getElementById('step-3').click();"
    dom = browser.dom(_write(tmp_path, _driven(cockpit_trace(), script)))
    assert "Step 3 · tool" in _detail(dom)
    lit = re.findall(r'<path class="edge \w+ lit"[^>]*><title>(\d+) → (\d+)', dom)
    assert lit
    assert all("3" in pair for pair in lit)
    unlit = re.findall(r'<path class="edge \w+"[^>]*><title>(\d+) → (\d+)', dom)
    assert unlit
    assert all("3" not in pair for pair in unlit)


def test_the_keyboard_walks_steps_and_edges(tmp_path: Path, browser: Browser) -> None:
    script = (
        _PRESS
        + """
    document.getElementById('step-2').focus();
    const seen = [];
    for (const key of ['ArrowLeft', 'ArrowRight', 'ArrowDown', 'End', 'Home', 'ArrowUp']) {
      press(key);
      seen.push(document.activeElement.id);
    }
    document.title = seen.join(' ');
    press('Escape');
    """
    )
    dom = browser.dom(_write(tmp_path, _driven(cockpit_trace(), script)))
    assert "<title>step-1 step-2 step-3 step-5 step-0 step-0</title>" in dom
    assert not re.search(r'<li[^>]*aria-selected="true"', dom), "Escape clears the choice"
    assert len(re.findall(r'class="row[^>]*tabindex="0"', dom)) == 1, "one stop for the tab key"


def test_the_legend_hides_a_signal(tmp_path: Path, browser: Browser) -> None:
    script = "document.querySelector('.tools input[value=control]').click();"
    dom = browser.dom(_write(tmp_path, _driven(cockpit_trace(), script)))
    hidden = re.findall(r'<path class="edge (\w+)[^"]* off"', dom)
    assert hidden
    assert set(hidden) == {"control"}
    assert re.search(r'<path class="edge tool"', dom)


def test_hostile_text_runs_nothing(tmp_path: Path, browser: Browser) -> None:
    html = to_html(hostile_trace())
    for address in ("", "#step-1"):
        dom = browser.dom(_write(tmp_path, html).as_uri() + address)
        assert "<title>owned</title>" not in dom
        assert "<img" not in dom
        assert dom.count("<script") == 2
    assert "onerror=" in _detail(dom).replace("&quot;", '"'), "it is shown, as text"


def test_the_pages_policy_refuses_a_script_that_is_not_its_own(tmp_path: Path, browser: Browser) -> None:
    html = to_html(cockpit_trace()).replace("</body>", "<script>document.title = 'owned'</script></body>")
    assert "<title>owned</title>" not in browser.dom(_write(tmp_path, html))


def test_the_longest_real_run_is_drawn(tmp_path: Path, browser: Browser, shared_data: Path) -> None:
    files = (shared_data / "whowhen" / "hand-crafted").glob("*.json")
    trace = max((trace for file in files for trace in load(file)), key=lambda trace: len(trace.steps))
    page = _write(tmp_path, to_html(trace))
    dom = browser.dom(page)
    assert dom.count('<g class="node') == len(trace.steps) >= 100
    assert browser.screenshot(page, size=(1500, 1600)).stat().st_size > 100_000, (
        "an empty page is a tenth of that"
    )
