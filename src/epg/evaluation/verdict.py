"""What a comparison allows to say, in one sentence per method. No JAX here."""

from typing import Any

MIN_TASKS = 10
"""With fewer tasks there is no verdict."""


def subject(label: str) -> str:
    """Return a method's label as the subject of a sentence: PPO, but the evolved loss."""
    return label if label[:1].isupper() else f"The {label}"


def verdicts(summary: dict[str, Any]) -> list[str]:
    """Say in one sentence per method what the paired interval says; nothing with fewer than ten tasks."""
    methods = list(summary["methods"].values())
    if summary["tasks"] < MIN_TASKS:
        return []
    sentences = []
    for other in methods[1:]:
        difference = other["difference"]
        tuning = "tuned for this family" if other["tuned"] else "not tuned for this family"
        name = f"{other['label']} ({other['steps']:,} steps, {other['updates']:,} updates, {tuning})"
        loss, interval = subject(methods[0]["label"]), "the 95 % interval of the paired difference"
        if difference["low"] > 0:
            sentences.append(f"{loss} is better than {name}: {interval} is above zero.")
        elif difference["high"] < 0:
            sentences.append(f"{loss} is worse than {name}: {interval} is below zero.")
        else:
            sentences.append(f"{loss} and {name} cannot be told apart: {interval} includes zero.")
    return sentences
