"""`epg evolve --dry-run`: the resolved settings, as a config file, and what they will cost."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from epg import api
from epg.cli.output import print_json, say
from epg.settings import Settings, to_dict


def print_plan(settings: Settings, processes: int | None, seeds: int, as_json: bool) -> None:
    """Print the settings as TOML, which `--config` reads, with the costs as comments; or one line of JSON."""
    cost = api.estimate(settings, processes)
    if as_json:
        print_json({"settings": to_dict(settings), "seeds": seeds, "estimate": to_dict(cost)})
        return
    time = timedelta(seconds=round(seeds * cost.seconds))
    say(f"# {seeds * cost.lifetimes:,} lifetimes, {seeds * cost.training_steps:,} steps of training")
    say(f"# at most {seeds * cost.scoring_steps:,} steps of scoring")
    say(f"# about {time} with {cost.processes} processes (rough: `epg bench {settings.family}` measures it)")
    say(_toml(to_dict(settings)).rstrip())


def _toml(settings: dict[str, Any]) -> str:
    """Write settings as TOML; what is not set becomes a comment, for TOML has no word for it."""
    single = {name: value for name, value in settings.items() if not isinstance(value, dict)}
    lines = [f"{name} = {json.dumps(value)}" if value is not None else f"# {name} =" for name, value in single.items()]
    sections = [f"\n[{name}]\n{_toml(value)}" for name, value in settings.items() if isinstance(value, dict)]
    return "".join(f"{line}\n" for line in lines) + "".join(sections)
