"""The docs as a site, the notebooks, and the package as a wheel: built, run and installed as a user would."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def run(*command: object, **options: object) -> str:
    """Run a program to its end and return what it printed."""
    done = subprocess.run([str(it) for it in command], capture_output=True, text=True, timeout=600, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_the_site_builds_without_a_warning_and_shows_every_page(tmp_path: Path) -> None:
    site = tmp_path / "site"
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site, cwd=ROOT)
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert all((site / page / "index.html").is_file() for page in pages)
    shown = (site / "index.html").read_text(encoding="utf-8")
    assert all(f'href="{page}/"' in shown for page in pages), "a page that the navigation does not lead to"
    reference = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("epg.evolve", "epg.learn", "epg.Learner", "epg.gym_family", "epg.preset"):
        assert f'id="{name}"' in reference
    assert "Train fresh policies with a loss on held-out tasks" in reference  # the docstrings are there
    loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]*)', shown)
    assert loaded == []  # nothing comes from elsewhere


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "EPG_NOTEBOOK_EPOCHS": "1"}
    # On one core, hence with one worker: each one more would compile the same programs again.
    core = ("taskset", "-c", max(os.sched_getaffinity(0))) if shutil.which("taskset") else ()
    run(*core, sys.executable, ROOT / "tools" / "run_notebooks.py", "--to", tmp_path, path.stem, env=environment)
    done, kept = (json.loads((folder / path.name).read_text())["cells"] for folder in (tmp_path, path.parent))
    for ours, shown in zip(done, kept, strict=True):
        assert ours["source"] == shown["source"]
        if ours["cell_type"] == "code":
            # What the docs show is what this code printed: as many outputs, of the same kinds.
            assert shown["execution_count"] == ours["execution_count"], "run `make notebooks`"
            assert [it["output_type"] for it in shown["outputs"]] == [it["output_type"] for it in ours["outputs"]]
            assert not [it for it in ours["outputs"] if it.get("name") == "stderr"]


def test_the_wheel_works_without_the_repository(tmp_path: Path) -> None:
    """Build it, install it where nothing of this repository can be imported, and train with a loss of the zoo."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("epg-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    files = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "epg").rglob("*") if path.is_file()}
    assert {it for it in files if "__pycache__" not in it} <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel)
    # The libraries are those of this environment; its own .pth files, which lead to the repository, are not read there.
    (place,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (place / "libraries.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    there = run(python, "-c", "import epg; print(epg.__file__)", cwd=tmp_path, env=alone)
    assert Path(there.strip()).is_relative_to(place)
    command = ("learn", "point-goal", "--tasks", "2", "--updates", "2", "--lifetimes", "1", "--json")
    result = json.loads(run(tmp_path / "env" / "bin" / "epg", *command, cwd=tmp_path, env=alone))
    assert result["methods"]["epg"]["updates"] == 2
    assert (tmp_path / result["run"] / "report.html").is_file()
