"""What the documentation shows is what runs: the family of one's own, and each command of its page."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from epg.people.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "custom_family.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be where a user would be: in a directory with the examples, and nothing else."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_the_example_is_short() -> None:
    assert len((ROOT / "examples" / "my_family.py").read_text().splitlines()) <= 40


def test_the_commands_of_the_page_run(workplace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [shlex.split(line)[0] for line in COMMANDS] == ["epg", "epg", "epg", "python"]
    for line in COMMANDS[:3]:
        main(shlex.split(line)[1:])
    said = capfd.readouterr().err
    assert said.count("ok  ") >= 9
    assert "FAIL" not in said
    assert (workplace / "runs" / "windy" / "report.html").is_file()
    assert "paired difference" in said


def test_the_example_is_a_program(workplace: Path) -> None:
    program, *arguments = shlex.split(COMMANDS[3])
    assert program == "python"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *checks, last = done.stdout.splitlines()
    assert len(checks) >= 9
    assert all(line.startswith("ok  ") for line in checks)
    assert (Path(last.removeprefix("loss in ")) / "loss.safetensors").is_file()
