"""Arguments to verbs: tyro's parser, its complaints as one sentence, and what a shell needs to complete them."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Positional

from epg.core.errors import BadInput, did_you_mean

POSITIONAL = get_args(Positional[str])[1]
"""What marks an argument that has no name."""


def parse(verb: Any, arguments: Sequence[str], prog: str, **how: Any) -> Any:
    """Parse a verb's arguments; what is wrong with them is one sentence."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(verb, args=arguments, prog=prog, **how)
    except SystemExit as end:
        if not end.code:
            raise
        raise BadInput(_sentence(said.getvalue(), verb, prog)) from None
    finally:
        if sys.exc_info()[0] is None:
            sys.stderr.write(said.getvalue())


def _sentence(box: str, verb: Any, prog: str) -> str:
    """Turn tyro's box into a sentence: what is missing or cannot be read, and the nearest option or choice."""
    box = re.sub(r"\x1b\[[0-9;]*m", "", box)  # colours
    sections = re.split(
        r"\n[ │|]*[─-]{8,}[ │|]*(?=\n)", f"\n{box}"
    )  # without a terminal there is no frame, but a title
    text = " ".join(re.sub(r"^[╭╰].*|[│|]", "", sections[0 if "╭" in box else 1], flags=re.MULTILINE).split()).rstrip(
        "."
    )
    wrong = re.match(r"Unrecognized options: (--[^\s,]+)", text)
    choice = re.match(r"invalid choice '(.*?)' .*Expected one of \((.*)\)", text)
    if wrong:
        known = options_of(verb)
        nested = [it for it in known if it.endswith(f".{wrong[1].removeprefix('--')}")]
        text += f" (did you mean {' or '.join(nested)}?)" if nested else did_you_mean(wrong[1], known)
    elif choice:
        text += did_you_mean(choice[1], re.findall(r"'([^']+)'", choice[2]))
    elif (absent := re.match(r"Missing value for argument '(\w+)'", text)) and absent[1].upper() in _positionals(verb):
        text = f"{prog} needs {absent[1].upper()}, without --{absent[1]}"
    elif text.startswith("Missing from"):
        text = f"{prog} needs {' and '.join(it for word, it in _positionals(verb).items() if word in text)}"
    elif unread := re.match(r"Error parsing (--\S+): (.*)", text):
        text = f"{unread[1]} {_unread(unread[2])}"
    return f"{text}; see {prog} --help."


def _unread(complaint: str) -> str:
    """Say what an option takes, from Python's or tyro's complaint about what it got."""
    kinds = {"invalid literal for int": "a whole number", "could not convert string to float": "a number"}
    for start, kind in kinds.items():
        if wrong := re.search(rf"{start}[^']*('.*?')", complaint):
            return f"takes {kind}, not {wrong[1]}"
    given = re.search(r"arguments: \[(.*)\]", complaint)
    return f"cannot be read from {given[1]}" if given else f"cannot be read: {complaint}"


def _positionals(verb: Any) -> dict[str, str]:
    """Return how tyro names each argument without a name, and how a sentence does."""
    found = {}
    for field, kind, marks in _arguments(verb):
        if POSITIONAL in marks:
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            word = next((it.metavar for it in marks if getattr(it, "metavar", None)), field.upper())
            if choices:
                found["{" + ",".join(choices) + "}"] = f"{word} ({', '.join(choices)})"
            else:
                found[word] = word
    return found


def _arguments(verb: Any) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield name, type and marks of each argument of a verb."""
    hints = get_type_hints(verb, include_extras=True)
    for field in fields(verb):
        hint = hints[field.name]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else [hint]
        yield field.name, kind, marks


def options_of(verb: Any, prefix: str = "--") -> list[str]:
    """Return the options of a verb, as they are typed."""
    found = []
    for field, kind, marks in _arguments(verb):
        if POSITIONAL in marks:
            continue
        named = next((it.name for it in marks if getattr(it, "name", None)), field)
        name = f"{prefix}{named.replace('_', '-')}"
        found += options_of(kind, f"{name}.") if is_dataclass(kind) else [name]
    return found


BASH = """_epg() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" options="" names="{names}"
  if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{verbs}" -- "$current")); return; fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ "$current" == -* ]]; then names="$options"; fi
  COMPREPLY=($(compgen -W "$names" -- "$current"))
}}
complete -o default -F _epg epg
"""


def completion(verbs: Mapping[str, Any], names: Iterable[str], shell: str) -> str:
    """Return the script that completes verbs, options, families and losses in bash or zsh."""
    cases = "\n".join(f'    {name}) options="{" ".join(options_of(verb))}" ;;' for name, verb in verbs.items())
    script = BASH.format(names=" ".join(dict.fromkeys(names)), verbs=" ".join(verbs), cases=cases)
    return ("autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else "") + script
