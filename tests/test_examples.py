"""What the documentation shows is what runs: families of one's own, and each command of their page."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from epg.cli import main
from epg.evaluation.family_check import CHECKS, HOST_CHECKS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "custom_family.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
WINDY, OTHERS = COMMANDS[:4], COMMANDS[4:]
FAMILIES = {"my_family": "WINDY_CART", "my_mujoco_family": "SWINGER", "my_gym_family": "PLANETS"}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be where a user would be: in a directory with the examples, and nothing else."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_the_examples_are_short_and_all_are_shown() -> None:
    files = sorted((ROOT / "examples").iterdir())
    for file in files:
        if file.is_file():
            assert len(file.read_text().splitlines()) <= 40
    families = {file.stem for file in files if file.suffix == ".py" and f"examples/{file.name}" in PAGE}
    assert families == set(FAMILIES)


def test_the_commands_of_the_page_run(workplace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [shlex.split(line)[0] for line in WINDY] == ["epg", "epg", "epg", "python"]
    check, evolve, compare = (shlex.split(line)[1:] for line in WINDY[:3])
    for command in (check, [*evolve, "--processes", "1"], compare):  # each worker more would compile once more
        main(command)
    printed = capfd.readouterr().out
    assert printed.count("ok  ") == len(CHECKS)
    assert "FAIL" not in printed
    assert (workplace / "runs" / "windy" / "report.html").is_file()
    assert "paired difference" in printed


@pytest.mark.slow
def test_the_example_is_a_program(workplace: Path) -> None:
    program, *arguments = shlex.split(WINDY[3])
    assert program == "python"
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *checks, last = done.stdout.splitlines()
    assert len(checks) == len(CHECKS)
    assert all(line.startswith("ok  ") for line in checks)
    assert (Path(last.removeprefix("loss in ")) / "loss.safetensors").is_file()


@pytest.mark.parametrize("module", ["my_mujoco_family", "my_gym_family"])
def test_the_other_families_pass_the_checker_and_evolve(
    module: str, workplace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    family = f"examples.{module}:{FAMILIES[module]}"
    check, evolve = (shlex.split(line) for line in OTHERS if family in line)
    main(check[1:])
    printed = capfd.readouterr().out
    assert check[:2] == ["epg", "check"]
    assert printed.count("ok  ") == len(CHECKS) + len(HOST_CHECKS)
    assert "FAIL" not in printed
    assert evolve[:2] == ["epg", "evolve"]
    main([*evolve[1:], "--evolution.epochs", "2", "--executor", "inline"])
    run = workplace / evolve[evolve.index("--run") + 1]
    assert (run / "loss.safetensors").is_file()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_the_fixed_policy_of_the_page_is_searched_and_starts_a_loss(workplace: Path) -> None:
    (search,) = (shlex.split(line) for line in OTHERS if line.startswith("epg baseline fixed"))
    run = search[search.index("--run") + 1]
    search[search.index("--env-steps") + 1] = "20000"  # of 200,000
    main([*search[1:], "--processes", "1"])
    assert (workplace / run / "policy.safetensors").is_file()
    (start,) = re.findall(r"`epg (evolve FAMILY [^`]*--start \S+)`", PAGE)
    options = shlex.split(start.replace("FAMILY", search[3]))
    main([*options, "--preset", "smoke", "--evolution.epochs", "1", "--executor", "inline", "--run", "runs/started"])
    assert json.loads((workplace / "runs/started/loss.json").read_text())["warm_start"]["kind"] == "policy"


def test_the_speed_of_the_three_is_measured_by_a_command_that_is_there() -> None:
    (tool,) = re.findall(r"`python (tools/\S+\.py)`", PAGE)
    assert (ROOT / tool).is_file()
