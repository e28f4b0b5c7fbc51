"""Figures as Markdown tables, which a terminal and a document both take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cockpithat.calibration.model import Calibration

Json = dict[str, Any]

_NAMES = {
    "official_agent": "agent, script's rule",
    "official_step": "step, script's rule",
    "asil": "ASIL",
    "any_failure": "any labelled failure",
    **{f"within_{k}": f"step ±{k}" for k in range(1, 6)},
}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with padded columns; the first column to the left, the others to the right."""
    table = [list(head), *([cell.replace("|", "/") for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = []
    for number, row in enumerate(table):
        cells = [
            c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |")
        if number == 0:
            marks = ["-" * w if not i else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
            lines.append("| " + " | ".join(marks) + " |")
    return "\n".join(lines)


def percent(share: float | None, interval: Sequence[float] | None = None) -> str:
    """``39.3 [29.5, 50.0]``, in percent."""
    if share is None:
        return "-"
    text = f"{100 * share:.1f}"
    return text if interval is None else f"{text} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def p_value(p: float) -> str:
    """Three digits, or that it is smaller."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def show_results(figures: Json) -> str:
    """One run: a table of figures by group, then its rows by category and rating."""
    parts = [("all", figures), *figures.get("groups", {}).items()]
    head = ["figure", *(f"{name} (n={part['n']})" for name, part in parts)]
    blocks = [
        f"{figures['method']} ({figures['analysts']}) on {figures['dataset']}, "
        f"ground truth {'shown' if figures['ground_truth_shown'] else 'not shown'}; "
        "percent with 95% Wilson intervals",
        markdown(head, _figure_rows([part for _, part in parts])),
    ]
    blocks += [_sliced(key, figures[key]) for key in ("by_category", "by_asil") if key in figures]
    blocks += _notes(figures)
    return "\n\n".join(blocks)


def _figure_rows(parts: Sequence[Json]) -> Iterator[list[str]]:
    for name in dict.fromkeys(name for part in parts for name in part["ci95"]):
        yield [
            _NAMES.get(name, name),
            *(percent(_share(part, name), part["ci95"].get(name)) for part in parts),
        ]
    for name, label in (
        ("agent", "chance, agent"),
        ("step", "chance, step"),
        ("official_step", "chance, step, script's rule"),
    ):
        yield [label, *(percent(part["chance"][name]) for part in parts)]
    yield ["tokens a trace", *(f"{part['tokens_per_trace']:,.0f}" for part in parts)]
    yield ["seconds a trace", *(f"{part['seconds_per_trace']:.3f}" for part in parts)]
    for name in ("errors", "degraded", "contested", "review"):
        if any(part[name] for part in parts):
            yield [name, *(str(part[name]) for part in parts)]


def _share(part: Json, name: str) -> float | None:
    if name.startswith("within_"):
        value = part["step_within"][name.removeprefix("within_")]
    elif name.startswith("official_"):
        value = part["official"][name.removeprefix("official_")]
    else:
        value = part.get(name)
    return None if value is None else float(value)


def _sliced(key: str, rows: Json) -> str:
    columns = [
        name for name in ("step", "agent", "category", "asil") if any(name in r for r in rows.values())
    ]
    extra = key == "by_asil"
    head = [
        key.removeprefix("by_"),
        "n",
        *(_NAMES.get(c, c) for c in columns),
        *(["H, bit", "max"] if extra else []),
    ]
    body = []
    for name, row in rows.items():
        cells = [name, str(row["n"]), *(percent(row.get(c), row["ci95"].get(c)) for c in columns)]
        if extra:
            cells += [f"{row['entropy_bits']:.3f}", f"{row['dominant_share']:.3f}"]
        body.append(cells)
    return markdown(head, body)


def _notes(figures: Json) -> Iterator[str]:
    if (stable := figures.get("stability")) is not None:
        yield (
            f"{figures['repeats']} repeats: same agent in {percent(stable['same_agent'])}% of runs, same "
            f"step in {percent(stable['same_step'])}%; standard deviation of accuracy: agent "
            f"{percent(stable['agent_sd'])}, step {percent(stable['step_sd'])} points"
        )
    if (second := figures.get("second_annotator")) is not None:
        for who, key in (
            ("the two annotators agree", "annotators"),
            ("the method agrees with the second", "method"),
        ):
            row = second[key]
            yield (
                f"{second['n']} runs with a second label: {who} on the agent in "
                f"{percent(row['agent'], row['ci95']['agent'])}%, on the step in "
                f"{percent(row['step'], row['ci95']['step'])}%"
            )
    if (held := figures.get("range")) is not None:
        yield (
            f"ranges at a coverage of {held['coverage']:g}: {percent(held['held'], held['ci95'])}% of "
            f"{held['n']} hold the decisive step, with {held['mean_steps']:.1f} steps on average"
        )


def show_comparison(comparison: Json) -> str:
    """Two runs with differences and p-values."""
    a, b = comparison["a"], comparison["b"]
    head = ["figure", "n", "A", "B", "B - A", "chi2", "p (chi2)", "only A", "only B", "p (McNemar)"]
    rows = [
        [
            _NAMES.get(name, name),
            str(row["n"]),
            percent(row["a"], row["ci95_a"]),
            percent(row["b"], row["ci95_b"]),
            percent(row["difference"], row["ci95_difference"]),
            f"{row['chi2']:.2f}",
            p_value(row["chi2_p"]),
            str(row["only_a"]),
            str(row["only_b"]),
            p_value(row["mcnemar_p"]),
        ]
        for name, row in comparison["figures"].items()
    ]
    left = comparison["only_in_a"] + comparison["only_in_b"]
    lines = [
        *(
            f"{letter}: {side['method']} ({side['analysts']}), ground truth "
            f"{'shown' if side['ground_truth_shown'] else 'not shown'}, {side['log']}"
            for letter, side in (("A", a), ("B", b))
        ),
        "",
        markdown(head, rows),
        "",
        "Percent with 95% intervals (A, B: Wilson; B - A: paired bootstrap). chi2: Pearson, one degree of "
        "freedom, no correction, as if the runs were independent; McNemar: exact, on the same runs, "
        "the test to go by.",
    ]
    if left:
        lines.append(f"{left} runs are in one log only and left out.")
    if a["ground_truth_shown"] != b["ground_truth_shown"]:
        lines.append("One run was shown the ground truth and the other was not: they are not comparable.")
    return "\n".join(lines)


def show_overview(rows: Iterable[Json]) -> str:
    """All methods on all data: one line each."""
    head = [
        "method", "analysts", "data", "n", "truth", "agent", "step", "joint", "step ±1", "step ±3",
        "script's agent", "script's step", "category", "ASIL", "tokens", "s",
    ]  # fmt: skip
    body = []
    for row in rows:
        ci = row["ci95"]
        by_script = row["dataset"] == "whowhen"  # the script is for these labels only
        body.append(
            [
                row["method"],
                row["analysts"],
                row["data"],
                str(row["n"]) + ("*" if row["errors"] or row["degraded"] else ""),
                "shown" if row["ground_truth_shown"] else "no",
                percent(row["agent"], ci.get("agent")),
                percent(row["step"], ci.get("step")),
                percent(row["joint"], ci.get("joint")),
                percent(row["step_within"]["1"]),
                percent(row["step_within"]["3"]),
                percent(row["official"]["agent"] if by_script else None),
                percent(row["official"]["step"] if by_script else None),
                percent(row.get("category")),
                percent(row.get("asil")),
                f"{row['tokens_per_trace']:,.0f}",
                f"{row['seconds_per_trace']:.3f}",
            ]
        )
    note = "\n\n* with errors or degraded answers" if any("*" in row[3] for row in body) else ""
    return markdown(head, body) + note


def show_coverage(calibration: Calibration, rows: Iterable[Json]) -> str:
    """What a calibration's sets do on unseen runs."""
    head = [
        "coverage",
        "shape",
        "unseen",
        "held",
        "observed",
        "binomial 95%",
        "with split",
        "mean steps",
        "of trace",
    ]
    body = [
        [
            f"{row['level']:g}",
            row["shape"],
            str(row["n"]),
            str(row["hits"]) + ("" if row["kept"] else " !"),
            percent(row["share"], row["interval"]),
            "{} to {}".format(*row["expected"]),
            "{} to {}".format(*row["expected_split"]),
            f"{row['mean_size']:.1f}",
            f"{percent(row['mean_share_of_trace'])}%",
        ]
        for row in rows
    ]
    title = f"{calibration.method} ({calibration.analysts}), calibrated on {calibration.n} runs"
    note = (
        "\n\n! held count outside the binomial interval of the level; 'with split' allows for the "
        "chance of the calibration part, too"
    )
    return f"{title}\n\n{markdown(head, body)}" + (note if any("!" in row[3] for row in body) else "")
