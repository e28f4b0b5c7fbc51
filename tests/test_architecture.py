"""Rules about the tree itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]

# Put together here, since this file is searched too.
_REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("deb", "debian", "org"),
    )
)
_MACHINE_PATH = re.compile(r"(?<![\w./$~{}*-])/(?:work|root|home/\w+|Users/\w+)/\w")
_BINARY = {".png", ".jpg", ".ico", ".gz", ".woff2"}


def tracked() -> list[Path]:
    """Files that a commit has, or will have."""
    command = ["git", "-C", str(_ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
    return [path for name in names if name and (path := _ROOT / name).is_file()]


def test_the_library_knows_nothing_of_the_stream() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [str(linter), "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 kept, 0 broken" in result.stdout


def test_no_registry_host_and_no_path_of_one_machine_stands_in_the_tree() -> None:
    found = []
    for path in tracked():
        if path.suffix in _BINARY:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if any(host in line for host in _REGISTRIES) or _MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(_ROOT)}:{number}")
    assert not found


def test_every_direct_dependency_is_pinned_in_constraints() -> None:
    import tomllib

    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned = {
        normalised(line.split("==")[0])
        for line in (_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    for requirement in wanted:
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None
        assert normalised(name[0]) in pinned, f"{name[0]} is not in constraints.txt"


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_readme_s_example_gives_what_the_readme_says() -> None:
    from cockpithat.formats import load
    from cockpithat.methods.registry import create

    (trace,) = load(_ROOT / "docs" / "examples" / "low_beam.jsonl")
    report = create("cockpithat", "local").judge(trace)  # type: ignore[attr-defined]
    assert (report.agent, report.step, report.category.value, report.asil.value) == (
        "VehicleAgent",
        1,
        "safety_safeguard_failure",
        "D",
    )
