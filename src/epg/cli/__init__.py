"""The command line: a verb is a dataclass of its arguments with a `main`. Bad input prints one sentence, exit code 2.

Nothing here imports JAX: `epg --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from epg import api
from epg.api import ExecutorFailed
from epg.cli.act import Act
from epg.cli.bench import Bench
from epg.cli.evolve import Evolve, parse_evolve
from epg.cli.families import Check, Tasks
from epg.cli.figure import Figure
from epg.cli.learning import Baseline, Compare, Learn, Probe
from epg.cli.output import say
from epg.cli.parsing import completion, parse
from epg.cli.render import Render
from epg.cli.runs import Demo, Losses, Report, Watch
from epg.core.errors import BadInput, did_you_mean, require
from epg.core.interrupts import exit_code, stop_on_signals
from epg.core.runtime import compilation_cache_directory, drop_damaged_programs, use_single_thread

VERBS: dict[str, type] = {
    "demo": Demo,
    "tasks": Tasks,
    "evolve": Evolve,
    "learn": Learn,
    "act": Act,
    "baseline": Baseline,
    "compare": Compare,
    "probe": Probe,
    "figure": Figure,
    "losses": Losses,
    "report": Report,
    "watch": Watch,
    "render": Render,
    "check": Check,
    "bench": Bench,
}


def _parse(arguments: Sequence[str]) -> Any:
    if not arguments or arguments[0] not in VERBS:
        _help(arguments)
    verb, rest = arguments[0], arguments[1:]
    if verb == "evolve":
        return parse_evolve(rest)
    return parse(VERBS[verb], rest, f"epg {verb}")


def _help(arguments: Sequence[str]) -> None:
    wanted = not arguments or arguments[0] in ("-h", "--help")
    if arguments and arguments[0] == "--version":
        from epg import __version__

        print(f"epg {__version__}")
        sys.exit(0)
    if arguments and arguments[0] == "completion":
        shell = "".join(arguments[1:])
        require(shell in ("bash", "zsh"), "name your shell: epg completion bash, or epg completion zsh.")
        print(completion(VERBS, [*api.REGISTRY, *api.zoo_names()], shell), end="")
        sys.exit(0)
    if not wanted:
        near = did_you_mean(arguments[0], [*VERBS, "--help", "--version", "completion"])
        raise BadInput(f"unknown command {arguments[0]!r}{near}: choose one of {', '.join(VERBS)}.")
    print("usage: epg COMMAND [OPTIONS]\n\nEvolve a loss function; train policies with it.\n\ncommands:")
    for name, verb in VERBS.items():
        print(f"  {name:<10}{(verb.__doc__ or '').splitlines()[0]}")
    print('\n`epg COMMAND --help` lists its options. `eval "$(epg completion bash)"` (or zsh) completes them.')
    sys.exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; without `arguments`, as the command that was typed."""
    try:
        with stop_on_signals():
            _run(sys.argv[1:] if arguments is None else arguments)
    except SystemExit as end:
        if arguments is None and isinstance(end.code, int) and end.code > 128:
            # XLA may still be computing on a thread of its own, and crashes if the interpreter is taken down around it.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise


def _run(arguments: Sequence[str]) -> None:
    use_single_thread()  # this process is ours; verbs called from Python change nothing of their caller's
    try:
        if _working_directory() not in sys.path:
            sys.path.append(_working_directory())  # where a user's module:attribute is
        verb = _parse(list(arguments))
        drop_damaged_programs(compilation_cache_directory())
        verb.main()
    except BadInput as error:
        say(f"epg: {error}", stderr=True)
        sys.exit(2)
    except ExecutorFailed as error:
        say(f"epg: {error}", stderr=True)
        sys.exit(1)
    except KeyboardInterrupt as stopped:
        say("\nepg: stopped.", stderr=True)
        sys.exit(exit_code(stopped))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise BadInput(f"the working directory is gone ({error.strerror}): change to one that exists.") from None
