"""The shape of the code: imports go downward, heavy libraries have one door, the paper's ideas have the files that a
newcomer looks for, and starting up is quick."""

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from epg.settings import Settings, flat

SRC = Path(__file__).parents[1] / "src"
LAYERS = (  # lowest first; each is a package of epg, or a module beside them
    "core",
    "settings",
    "storage",
    "executors",
    "simulators",
    "families",
    "policies",
    "loss",
    "learners",
    "lifetime",
    "warm_starts",
    "evolution",
    "baselines",
    "evaluation",
    "viz",
    "recipes",
    "zoo",
    "bench",
    "envs",
    "experiments",
    "api",
    "cli",
)
ALLOWED = {"cli": {"api", "core", "settings", "cli"}}  # layers that may import these only, not all below them
FACADE = ("epg/__init__.py", "epg/__main__.py")
DOORS = {  # library: the only files (or folders, with a final slash) that may import it
    "evosax": ("epg/evolution/strategy.py",),
    "gymnasium": ("epg/simulators/gym.py", "epg/families/gym_factory.py", "epg/envs/"),
    "matplotlib": ("epg/viz/curves.py", "epg/viz/card.py", "epg/viz/panels.py"),
    "mujoco": ("epg/simulators/mujoco.py", "epg/viz/camera.py"),
    "PIL": ("epg/viz/film.py",),
    "imageio": ("epg/viz/film.py",),
    "ray": ("epg/executors/ray.py",),
    "tensorboardX": ("epg/storage/metrics.py",),
    "tyro": ("epg/cli/",),
}
QUESTIONS = {  # where a newcomer looks for an idea of the paper
    "evolution/loop.py": "Algorithm 1",
    "lifetime/update.py": "Algorithm 2",
    "loss/network.py": "Fig. 2",
    "loss/inputs.py": "What the loss sees",
    "learners/ppo.py": "PPO",
    "learners/guided.py": "Eq. 10",
    "families/mujoco/hopper.py": "hopper",
    "evolution/strategy.py": "evolution strategy",
    "recipes/random_hopper.py": "random-hopper",
}
MAX_LINES = 300  # of a file that answers a question
MAX_SETTINGS = 50


def imported(path: str, source: str) -> Iterator[str]:
    """Yield the absolute name of everything a module imports, wherever in it the import stands."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, level):
                base = package[: len(package) - level + 1] if level else []
                origin = ".".join([*base, *([module] if module else [])])
                yield from (f"{origin}.{alias.name}" for alias in names)
            case ast.Call(
                ast.Name("__import__" | "import_module") | ast.Attribute(attr="import_module"),
                [ast.Constant(str(name)), *_],
            ):
                yield ".".join([*package, name.lstrip(".")]) if name.startswith(".") else name


def violations(path: str, source: str) -> list[str]:
    """Say what is wrong with the imports of a module, given its path from src and its text."""
    found = []
    top, *inside = path.split("/")
    here = None if path in FACADE else inside[0].removesuffix(".py")
    if here is not None and here not in LAYERS:
        found.append(f"{path} is in no layer")
    for name in imported(path, source):
        root, _, rest = name.partition(".")
        if root in DOORS and not any(path == d or (d[-1] == "/" and path.startswith(d)) for d in DOORS[root]):
            found.append(f"{path} imports {root}, whose door is {DOORS[root][0]}")
        target = rest.split(".")[0]
        if root != top or here not in LAYERS or target.startswith("__"):  # __version__ is nobody's layer
            continue
        if target not in LAYERS:
            found.append(f"{path} imports {name}, which is in no layer")
        elif LAYERS.index(target) > LAYERS.index(here):
            found.append(f"{path} imports {name}: {here} is below {target}")
        elif target not in ALLOWED.get(here, LAYERS):
            found.append(f"{path} imports {name}: {here} may import {', '.join(sorted(ALLOWED[here]))} only")
    return found


MODULES = sorted(p.relative_to(SRC).as_posix() for p in SRC.glob("epg/**/*.py"))


def test_every_layer_is_there():
    assert {m.split("/")[1].removesuffix(".py") for m in MODULES if m not in FACADE} == set(LAYERS)


@pytest.mark.parametrize("path", MODULES)
def test_module_respects_layers_and_doors(path):
    assert violations(path, (SRC / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("epg/core/rng.py", "import epg.policies.mlp"),
        ("epg/core/rng.py", "from epg import settings"),
        ("epg/policies/mlp.py", "from epg.learners.base import Learner"),
        ("epg/policies/mlp.py", "from ..viz import curves"),
        ("epg/families/mujoco/__init__.py", "from ...evolution.loop import evolve_run"),
        ("epg/lifetime/scan_driver.py", "def f():\n    if True:\n        from epg.evolution import loop as evolution"),
        ("epg/lifetime/scan_driver.py", "try:\n    import epg.cli\nexcept ImportError:\n    pass"),
        ("epg/simulators/mujoco.py", "if TYPE_CHECKING:\n    from epg.families.base import Task"),
        ("epg/evolution/loop.py", "import importlib\nimportlib.import_module('epg.cli')"),
        ("epg/evolution/loop.py", "import epg"),
        ("epg/evolution/loop.py", "from epg import evolve"),
        ("epg/evolution/loop.py", "from epg import api"),
        ("epg/api/learning.py", "from epg.cli.output import print_table"),
        ("epg/api/learning.py", "import matplotlib"),
        ("epg/cli/output.py", "from epg.storage.files import write_json"),
        ("epg/cli/evolve.py", "def f():\n    from epg.evolution.loop import evolve_run"),
        ("epg/cli/evolve.py", "from ..recipes import preset"),
        ("epg/policies/mlp.py", "from epg.helpers import anything"),
        ("epg/helpers/anything.py", ""),
        ("epg/helpers.py", ""),
        ("epg/viz/report.py", "import matplotlib.pyplot as plt"),
        ("epg/viz/report.py", "def f():\n    from matplotlib import pyplot"),
        ("epg/viz/curves.py", "import mujoco"),
        ("epg/executors/local.py", "import ray"),
        ("epg/simulators/mujoco.py", "import gymnasium"),
        ("epg/viz/register.py", "from gymnasium import register"),
        ("epg/climate.py", "import epg"),  # only begins like cli
        ("epg/storage/run.py", "from tensorboardX import SummaryWriter"),
        ("epg/api/learning.py", "import tyro"),
        ("epg/evolution/loop.py", "__import__('evosax')"),
        ("epg/__init__.py", "import mujoco"),
    ],
)
def test_checker_refuses(path, source):
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("epg/core/rng.py", "import jax\nfrom epg.core.errors import BadInput"),
        ("epg/executors/__init__.py", "from . import ray\nfrom ..storage import files"),
        ("epg/executors/ray.py", "import ray"),
        ("epg/simulators/gym.py", "import gymnasium"),
        ("epg/envs/env.py", "import gymnasium\nfrom gymnasium.spaces import Box"),
        ("epg/api/learning.py", "from epg import __version__\nfrom epg.evolution.loop import evolve_run"),
        ("epg/cli/evolve.py", "import tyro\nfrom epg import __version__, api\nfrom epg.settings import Settings"),
        ("epg/cli/__init__.py", "import tyro"),
        ("epg/viz/report.py", "import matplotlib_inline, rayon"),  # names that only begin alike
        ("epg/__init__.py", "from epg import cli\nfrom epg.evolution.loop import evolve_run"),
    ],
)
def test_checker_allows(path, source):
    assert violations(path, source) == []


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_newcomers_question_has_a_file_of_its_own(path):
    text = (SRC / "epg" / path).read_text(encoding="utf-8")
    assert QUESTIONS[path] in (ast.get_docstring(ast.parse(text)) or ""), "its first lines say what it answers"
    assert len(text.splitlines()) < MAX_LINES


def test_settings_are_few():
    assert len(flat(Settings(family="point-goal"))) <= MAX_SETTINGS


def python(*arguments: str) -> str:
    """Run this interpreter afresh and return what it printed; a failure shows what it complained of."""
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_import_is_light():
    heavy = "{'jax', 'ray', 'matplotlib', 'mujoco', 'gymnasium'}"
    assert python("-c", f"import sys, epg; print(sorted({heavy} & set(sys.modules)))").strip() == "[]"


def best_of_three(*arguments: str) -> float:
    """Return the CPU seconds of the fastest of three runs, interpreter start included."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        python(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


def test_import_is_quick():
    assert best_of_three("-c", "import epg") < 0.5


def test_help_is_quick():
    assert "evolve" in python("-m", "epg", "--help")
    assert best_of_three("-m", "epg", "--help") < 1.0
