"""Wrong calls of the kind people make: one sentence with the right suggestion, exit code 2, nothing written."""

import shlex
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import epg
from epg.api import zoo_names
from epg.cli import VERBS, main
from epg.cli.parsing import completion, options_of
from epg.core.errors import did_you_mean
from epg.evaluation.family_check import check_family

WRONG = {
    "lern point-goal": "did you mean learn?",
    "evlove point-goal": "did you mean evolve?",
    "train point-goal": "unknown command 'train'",
    "--verison": "did you mean --version?",
    "help": "did you mean --help?",
    "learn": "epg learn needs LOSS",
    "learn --loss point-goal": "epg learn needs LOSS, without --loss",
    "learn point-gol": "did you mean point-goal?",
    "learn runs/nothing": "no loss at runs/nothing",
    "learn point-goal --taks 3": "did you mean --tasks?",
    "learn point-goal --tasks x": "--tasks takes a whole number, not 'x'",
    "learn point-goal --updates 1e3": "--updates takes a whole number, not '1e3'",
    "learn goal-ant": "no loss for goal-ant is shipped: `epg evolve goal-ant` makes one",
    "learn Hopper-v5": "Hopper-v5 is a Gymnasium id, not a loss: wrap it with epg.gym_family",
    "learn point-goal --tasks": "Missing value for argument '--tasks'",
    "learn point-goal --tasks -3": "tasks must be above zero, not -3",
    "learn point-goal --seed -1": "seed must lie in",
    "learn point-goal --updates 0": "updates must be above zero",
    "learn point-goal --stretch": "stretch needs updates",
    "learn point-goal --policy.hidden 0": "policy.hidden needs widths above zero",
    "learn point-goal --policy.activation tan": "did you mean tanh?",
    "compare point-goal --policy.widths 64": "Unrecognized options: --policy.widths",
    "learn point-goal extra": "Unrecognized options: extra",
    "learn point-goal --family point-raech": "did you mean point-reach?",
    "learn point-goal --family CartPole-v1": "CartPole-v1 is a Gymnasium id: wrap it with epg.gym_family",
    "learn point-goal --family random-pendulum": "does not fit random-pendulum",
    "compare": "epg compare needs LOSS",
    "compare point-goal --ppo-step 64": "did you mean --ppo-steps?",
    "compare point-goal --ppo-steps 0": "PPO's steps must be above zero",
    "compare point-goal --maml-steps 0": "the steps of an update of MAML must be above zero",
    "compare point-goal --maml-steps 4000": "maml_steps needs maml among the others: --with ppo maml",
    "compare point-goal --with": "--with needs a method to compare with",
    "probe": "epg probe needs LOSS",
    "probe nothing": "no loss at nothing",
    "render": "name either a loss or --baseline",
    "render point-goal": "point-goal cannot be drawn: choose a MuJoCo family",
    "render --baseline ppo": "--baseline needs --family",
    "evolve": "epg evolve needs FAMILY",
    "evolve point-gaol": "did you mean point-goal?",
    "evolve Pendulum-v1": "Pendulum-v1 is a Gymnasium id",
    "evolve epg/PointGoal-v0": "is a Gymnasium id",
    "evolve ALE/Pong-v5": "is a Gymnasium id",
    "evolve nothing:FAMILY": "no module named 'nothing'",
    "evolve json:FAMILY": "module 'json' has no 'FAMILY'",
    "evolve json:loads": "is a function, not a family",
    "evolve --preset smoke": "evolve needs the family before its options",
    "evolve point-goal --preset papr": "did you mean paper?",
    "evolve point-goal --evolution.epoch 3": "did you mean --evolution.epochs?",
    "evolve point-goal --epochs 3": "did you mean --guidance.epochs or --evolution.epochs?",
    "evolve point-goal --evolution.epochs 0": "evolution.epochs must be above zero",
    "evolve point-goal --executor locl": "did you mean local?",
    "evolve point-goal --policy.activation tan": "did you mean tanh?",
    "evolve point-goal --policy.hidden a": "--policy.hidden cannot be read from 'a'",
    "evolve point-goal --evolution.step-size big": "--evolution.step-size takes a number, not 'big'",
    "evolve point-goal --resume": "--resume needs --run",
    "evolve point-goal --resume --run nothing": "nothing does not exist",
    "evolve point-goal --seeds 0": "--seeds must be above zero",
    "evolve point-goal --processes 0": "processes must be above zero",
    "evolve point-goal --address host:1": "for the executor ray only",
    "evolve point-goal --start nothing": "nothing",
    "evolve point-goal --config nothing.toml": "nothing.toml cannot be read",
    "evolve point-goal --loss.inputs rewards": "did you mean reward?",
    "evolve random-pendulum --loss.window 8": "loss.window",
    "baseline pppo point-goal": "did you mean ppo?",
    "figure": "epg figure needs N;",
    "figure 23": "unknown figure '23': choose 3 to 22",
    "demo --run /dev/null/demo": "/dev/null/demo/point-goal cannot be made",
    "watch": "epg watch needs RUN;",
    "learn runs/hopper-v2": "no loss at runs/hopper-v2",
    "baseline": "epg baseline needs NAME (ppo, reinforce, fixed, fixed-ppo, maml, rl2) and FAMILY",
    "baseline ppo": "epg baseline needs FAMILY",
    "baseline fixed point-goal": "baseline fixed needs --env-steps",
    "baseline ppo point-goal --env-steps 9": "--env-steps is for fixed, fixed-ppo, maml and rl2, not for ppo",
    "act": "epg act needs POLICY",
    "act nothing": "nothing does not exist",
    "act point-goal": "point-goal is a loss, not a policy: `epg learn point-goal` trains some",
    "compare point-goal --with ppoo": "unknown method 'ppoo' (did you mean ppo?)",
    "act . --env Pendulum-v1": "is not a policy",
    "report nothing": "nothing does not exist",
    "tasks point-gol": "did you mean point-goal?",
    "tasks --picture x.png": "--picture needs a family",
    "tasks point-goal --picture x.jpg": "a picture is a PNG",
    "check": "epg check needs FAMILY",
    "check nothing": "unknown family 'nothing'",
    "completion fish": "name your shell",
    "bench nothing": "unknown family 'nothing'",
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_call_gets_one_sentence(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(shlex.split(call))
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    (line,) = [it for it in err.splitlines() if it.strip()]
    assert line.startswith("epg: ")
    assert WRONG[call] in line
    assert line.endswith(".")
    assert list(tmp_path.iterdir()) == []


def test_there_are_sixty() -> None:
    assert len(WRONG) >= 60


@pytest.mark.parametrize(
    ("name", "choices", "near"),
    [("ab", ["xy"], ""), ("random-hoper", ["random-hopper"], "random-hopper"), ("Ppo", ["ppo"], "ppo")],
)
def test_a_suggestion_is_near_or_none(name: str, choices: list[str], near: str) -> None:
    assert did_you_mean(name, choices) == (f" (did you mean {near}?)" if near else "")


def test_a_shell_completes_verbs_options_and_names(tmp_path: Path) -> None:
    script = tmp_path / "epg.bash"
    script.write_text(completion(VERBS, ["random-walker", *zoo_names()], "bash"))

    def complete(*words: str) -> list[str]:
        line = f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        line += '; _epg; echo "${COMPREPLY[@]}"'
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split()

    assert complete("epg", "ev") == ["evolve"]
    assert complete("epg", "learn", "--ta") == ["--tasks"]
    assert complete("epg", "evolve", "random-w") == ["random-walker"]
    assert "--evolution.noise-vectors" in options_of(VERBS["evolve"])
    assert "--with" in options_of(VERBS["compare"])  # as it is typed, not as its field is called
    assert not {"--others", "--loss"} & {*options_of(VERBS["compare"])}
    assert completion(VERBS, [], "zsh").startswith("autoload")


def same(seed: int) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1")


def moody(seed: int) -> gymnasium.Env:
    return gymnasium.make("Pendulum-v1", g=MOOD.uniform(2, 15))


MOOD = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("make", "check", "problem"),
    [
        (same, "tasks vary", "make ignores its seed"),
        (moody, "the same keys repeat a rollout", "make(seed) must give the same task for the same seed"),
    ],
)
def test_the_checker_names_a_factory_that_ignores_its_seed(make: object, check: str, problem: str) -> None:
    family = epg.gym_family("pendulums", make, horizon=16)  # type: ignore[arg-type]
    (found,) = check_family(family, [check])
    assert problem in str(found.problem)
