"""The tutorial, as it stands in the docs: a family, its loss, one's own loop, a policy that acts."""

import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import epg
from epg.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("planets.py", "planets_loop.py")
    for name in files:
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    assert sum(len((tmp_path / name).read_text().splitlines()) for name in files) < 60
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    _, evolve, program, act = (shlex.split(line) for block in blocks for line in block.splitlines())
    main([*evolve[1:], "--executor", "inline", "--evolution.epochs", "1"])
    runpy.run_path(program[1], run_name="__main__")
    assert epg.load_policy("runs/policy").manifest["spaces"]["observation"] == 4
    capsys.readouterr()
    main(act[1:-2])  # without the video: a machine of CI may have nothing to draw with
    assert "InvertedPendulum-v5: mean return" in capsys.readouterr().out
