"""Settings in and out: by dotted name, from files, as a dry run; and several seeds of one evolution."""

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import epg
from epg import api
from epg.cli import _parse, main
from epg.core.errors import BadInput
from epg.evolution.runs import create_run
from epg.families.registry import find_family
from epg.settings import Settings, flat, from_dict, to_dict, with_values
from epg.storage.metrics import read_metrics
from epg.viz.run_reader import Epochs

SMOKE = epg.preset("point-goal", "smoke")


def dry_run(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    main(["evolve", *map(str, arguments), "--dry-run"])
    return capsys.readouterr().out


def test_a_preset_takes_values_by_their_dotted_names() -> None:
    changed = epg.preset("point-goal", "smoke", seed=3, **{"evolution.epochs": 20, "policy.hidden": [8]})
    differing = {name: value for name, value in flat(changed).items() if value != flat(SMOKE)[name]}
    assert differing == {"seed": 3, "evolution.epochs": 20, "policy.hidden": (8,)}
    assert with_values(SMOKE, {"evolution": {"epochs": 20}, "policy": {"hidden": [8]}, "seed": 3}) == changed


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"evolution.epoch": 3}, r"no setting named 'evolution.epoch' \(did you mean evolution.epochs\?\)"),
        ({"evolution": {"sigmaa": 3}}, r"no setting named 'evolution.sigmaa' \(did you mean evolution.sigma\?\)"),
        ({"evolution.epochs": "3"}, "evolution.epochs must be int, not '3'"),
        ({"evolution.epochs": -1}, "evolution.epochs must be above zero, not -1"),
        ({"policy.activation": "sin"}, "policy.activation must be one of tanh, relu"),
        ({"evolution": 3}, "no setting named 'evolution'"),
        ({"qwertz": 3}, "no setting named 'qwertz'\\."),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        epg.preset("point-goal", "smoke", **values)


def test_a_dry_run_prints_what_config_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = dry_run("point-goal", "--preset", "smoke", "--lifetime.updates", 3, capsys=capsys)
    given = tomllib.loads(text)
    expected = epg.preset("point-goal", "smoke", **{"lifetime.updates": 3})
    assert from_dict(type(SMOKE), given) == expected
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "mine.json").write_text(json.dumps({"kind": "evolve", "settings": to_dict(expected)}))
    for name in ("mine.toml", "mine.json"):
        assert _parse(["evolve", "--config", str(tmp_path / name)]).settings == expected
        assert epg.load_settings(tmp_path / name) == expected
    changed = _parse(["evolve", "point-reach", "--config", str(tmp_path / "mine.json"), "--evolution.epochs", "9"])
    assert changed.settings == with_values(expected, {"family": "point-reach", "evolution.epochs": 9})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_part_of_the_settings_is_enough(tmp_path: Path) -> None:
    (tmp_path / "part.toml").write_text("seed = 4\n[evolution]\nepochs = 7\n")
    settings = _parse(["evolve", "point-goal", "--preset", "smoke", "--config", str(tmp_path / "part.toml")]).settings
    assert settings == with_values(SMOKE, {"seed": 4, "evolution.epochs": 7})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.toml", "seed = 3", "names no family"),
        ("x.toml", "seed = = 3", "is not TOML"),
        ("x.json", "[1]", "must be an object of settings"),
        ("x.json", "{", "is damaged"),
        ("x.yaml", "", "name a run, a .json or a .toml file"),
        ("x.toml", 'family = "os:path"', "names code: name os:path"),
        ("x.toml", 'family = "point-goal"\n[evolution]\nepoch = 3', r"did you mean evolution.epochs\?"),
        ("x.toml", 'family = "point-goal"\n[evolution]\nbetas = [0.9]', "evolution.betas must be a list of 2"),
        ("nothing.toml", None, "cannot be read: No such file"),
    ],
)
def test_a_config_that_says_nothing_sound_is_refused(
    name: str, text: str | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as end:
        main(["evolve", "--config", str(tmp_path / name)])
    assert end.value.code == 2
    with pytest.raises(BadInput, match=sentence):
        _parse(["evolve", "--config", str(tmp_path / name)])


@pytest.mark.parametrize("family", ["point-goal", "random-hopper"])
def test_costs_are_counted(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = epg.preset(family, "smoke")  # 4 epochs x 8 lifetimes x 4 updates x 32 steps; 3 scoring episodes
    cost = api.estimate(settings, 2)
    assert (cost.lifetimes, cost.training_steps, cost.processes) == (32, 4096, 2)
    assert cost.scoring_steps == 32 * 3 * (settings.evolution.horizon or find_family(family).horizon)
    printed = json.loads(dry_run(family, "--preset", "smoke", "--processes", 2, "--json", capsys=capsys))
    assert printed["estimate"] == to_dict(cost)


def test_several_seeds_are_the_evolutions_of_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--preset", "smoke", "--executor", "inline", "--evolution.epochs", "1"]
    main(["evolve", "point-goal", *short, "--seeds", "2", "--run", str(tmp_path / "all"), "--json"])
    both = json.loads(capsys.readouterr().out)
    assert [Path(it["run"]).name for it in both] == ["seed-0", "seed-1"]
    assert both[0]["loss_sha256"] != both[1]["loss_sha256"]
    for seed in (0, 1):
        config = json.loads((tmp_path / "all" / f"seed-{seed}" / "config.json").read_text())
        assert from_dict(Settings, config["settings"]) == epg.preset(
            "point-goal", "smoke", seed=seed, **{"evolution.epochs": 1}
        )
    assert (tmp_path / "all" / "figures" / "fitness.svg").is_file()
    main(["report", str(tmp_path / "all")])
    shown, page = capsys.readouterr().out, (tmp_path / "all" / "report.html").read_text(encoding="utf-8")
    assert "point-goal: 2 seeds" in shown
    assert "Evolution on point-goal: 2 seeds" in page
    lines = api.summarise_seeds(tmp_path / "all")
    assert [(it.seed, it.epochs, it.run.name) for it in lines] == [(0, 1, "seed-0"), (1, 1, "seed-1")]
    for it in lines:
        (record,) = read_metrics(it.run / "metrics.jsonl")
        assert (it.fitness_first, it.env_steps) == (record["fitness_mean"], record["env_steps"])
        assert f"{it.fitness_last:.2f}" in shown
    again = ["evolve", "point-goal", "--run", str(tmp_path / "all"), "--resume", "--executor", "inline"]
    main([*again, "--seeds", "2", "--json"])
    assert json.loads(capsys.readouterr().out) == both
    with pytest.raises(SystemExit):
        main(["evolve", "point-goal", *short, "--seeds", "2", "--seed", "1", "--run", str(tmp_path / "all")])
    assert not (tmp_path / "all" / "seed-2").exists()
    assert "already holds a run" in capsys.readouterr().err


def test_a_table_over_seeds_has_the_numbers_of_their_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [it.name for it in fields(Epochs)]
    for seed in (3, 20, 100):
        run = create_run(epg.preset("point-goal", "smoke", seed=seed), tmp_path / f"seed-{seed}")
        lines = [
            dict.fromkeys(names, 1.0) | {"epoch": it, "fitness_mean": seed + it, "env_steps": 7} for it in range(12)
        ]
        lines[9] |= {"phi_fitness": seed / 2, "phi_fitness_error": 0.25}
        run.metrics.write_text("".join(json.dumps(it) + "\n" for it in lines) if seed < 100 else "")  # has no epoch yet
    first, second = api.summarise_seeds(tmp_path)
    assert (first.seed, first.epochs, first.env_steps) == (3, 12, 84)
    assert (first.fitness_first, first.fitness_last) == (3, 3 + 6.5)  # of epochs 2 to 11
    assert (second.seed, second.phi_fitness, second.phi_error) == (20, 10, 0.25)
    main(["report", str(tmp_path)])
    shown, page = capsys.readouterr().out, (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "10.00 ± 0.25" in shown
    assert "26.50" in page
    assert "18.00 ± 12.02 (standard deviation)" in page
    assert (tmp_path / "seed-20" / "report.html").is_file()
    with pytest.raises(BadInput, match="holds no run seed-N with an epoch"):
        api.summarise_seeds(tmp_path / "seed-100")
