"""The Ray executor: what becomes of actors, nodes and stragglers changes no result, and nothing is left running."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from namespaces import unshare
from test_executors import alive, numbers, wait_until
from workloads import Stillborn

from epg.core.errors import BadInput
from epg.core.interrupts import exit_code
from epg.evolution.loop import EvolutionResult, evolve_run
from epg.evolution.runs import create_run
from epg.executors import Cluster, ExecutorFailed, check_executor, make_executor, pool
from epg.executors import ray as ray_executor
from epg.executors.ray import RayExecutor, check_address
from epg.recipes import preset
from epg.settings import Settings

FAMILY = "point-goal"

# Ray forks to start the nodes of a test cluster, and at once becomes another program.
pytestmark = pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")


def on_ray(function: str, config: dict[str, Any], processes: int | None = 2, **more: Any) -> RayExecutor:
    executor = make_executor("ray", f"workloads:{function}", config, processes, **more)
    assert isinstance(executor, RayExecutor)
    return executor


@pytest.fixture
def second_node(ray_cluster: Any) -> Iterator[Any]:
    """Add a node of one CPU; the test may kill it."""
    node = ray_cluster.add_node(num_cpus=1, include_dashboard=False)
    yield node
    if node in ray_cluster.list_all_nodes():
        ray_cluster.remove_node(node)


# Actors.


def test_actors_are_single_threaded_and_a_fraction_of_a_cpu_will_do(ray_cluster: Any) -> None:
    with on_ray("environment", {}, None, cluster=Cluster(cpus=0.5)) as executor:
        results = executor.map(numbers(*range(40)))
        assert wait_until(lambda: len(_start(executor).nodes) == 4)  # two CPUs
    assert all(result["single"] for result in results)
    assert {int(result["pid"]) for result in results}.isdisjoint({os.getpid()})


def _start(executor: RayExecutor) -> RayExecutor:
    """Let an executor take note of the actors that have started."""
    executor.map(numbers(1))
    return executor


def test_an_actor_that_dies_is_replaced_and_its_request_repeated(ray_cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    config = {"folder": str(tmp_path / "flags"), "times": 2}
    with on_ray("die", config, 1, log_dir=tmp_path / "logs") as executor:
        results = executor.map(numbers(*range(6)))
    assert [int(result["y"]) for result in results] == [0, 2, 4, 6, 8, 10]
    assert len(list((tmp_path / "flags").iterdir())) == 2
    assert (tmp_path / "logs" / "ray.log").read_text().count("lost a worker") == 2


def test_a_request_that_always_kills_is_given_up(ray_cluster: Any, tmp_path: Path) -> None:
    with on_ray("die", {"folder": str(tmp_path), "times": 99}, 1) as executor:
        with pytest.raises(ExecutorFailed, match=r"cost 3 workers with one request; .* \(no log was kept\)"):
            executor.map(numbers(3))
        (result,) = executor.map(numbers(4))
    assert result["y"] == 8
    assert len(list(tmp_path.iterdir())) == 3


def test_a_failure_names_the_log_with_the_traceback(ray_cluster: Any, tmp_path: Path) -> None:
    with on_ray("fail", {}, 1, log_dir=tmp_path) as executor, pytest.raises(ExecutorFailed, match=r"see .*/ray\.log"):
        executor.map(numbers(1))
    assert "ZeroDivisionError" in (tmp_path / "ray.log").read_text()


def test_actors_that_never_start_are_given_up(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "ShardActor", Stillborn)
    with on_ray("double", {}, 1) as executor, pytest.raises(ExecutorFailed, match=r"no worker starts .*no room here"):
        executor.map(numbers(1))


# Stragglers.


def test_the_request_of_a_straggler_runs_elsewhere_too(ray_cluster: Any, tmp_path: Path) -> None:
    with on_ray("stall", {"folder": str(tmp_path)}) as executor:
        executor.map(numbers(*range(1, 20)))  # what is usual
        began, done = time.monotonic(), []
        results = executor.map(numbers(0, 1, 2), done.append)
        assert time.monotonic() - began < 20
        assert [int(result["y"]) for result in results] == [0, 2, 4]
        assert sorted(done) == [0, 1, 2]
        (again,) = executor.map(numbers(5))  # the other one still sleeps
    assert again["y"] == 10
    assert (tmp_path / "stalled").exists()


def test_a_straggler_is_noticed_before_any_worker_has_answered_twice(ray_cluster: Any, tmp_path: Path) -> None:
    """As many workers as shards, and one hangs in the first epoch: the paper's way to share work out."""
    began = time.monotonic()
    with on_ray("stall", {"folder": str(tmp_path)}) as executor:
        results = executor.map(numbers(0, 1))
    assert time.monotonic() - began < 50
    assert [int(result["y"]) for result in results] == [0, 2]


def test_a_stuck_worker_is_replaced_when_there_is_no_other(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "STUCK_SECONDS", 1.0)
    with on_ray("stall", {"folder": str(tmp_path)}, 1, log_dir=tmp_path / "logs") as executor:
        executor.map(numbers(*range(1, 10)))
        (result,) = executor.map(numbers(0))
    assert result["y"] == 0
    assert "no answer for" in (tmp_path / "logs" / "ray.log").read_text()


@pytest.mark.slow
def test_a_fast_worker_is_no_straggler(ray_cluster: Any, tmp_path: Path) -> None:
    with on_ray("slow", {"folder": str(tmp_path)}) as executor:
        executor.map([{"seconds": np.asarray(0.4)} for _ in range(6)])
        before = executor._tickets
        executor.map([{"seconds": np.asarray(seconds)} for seconds in (0.4, 0.7)])
        assert executor._tickets - before == 2


# Nodes.


@pytest.mark.slow
def test_a_node_that_joins_is_used_from_the_next_map_and_one_that_leaves_is_done_without(
    ray_cluster: Any, tmp_path: Path
) -> None:
    with on_ray("slow", {"folder": str(tmp_path)}, None, log_dir=tmp_path / "logs") as executor:

        def nodes_after_a_map() -> int:
            executor.map([{"seconds": np.asarray(0.1)}] * 4)
            return len(set(executor.nodes))

        assert nodes_after_a_map() == 1
        node = ray_cluster.add_node(num_cpus=2, include_dashboard=False)
        try:
            assert wait_until(lambda: nodes_after_a_map() == 2, 60)  # once its workers have started
            killer = threading.Timer(0.5, ray_cluster.remove_node, (node,), {"allow_graceful": False})
            killer.start()
            results = executor.map([{"seconds": np.asarray(seconds)} for seconds in np.linspace(1.0, 2.0, 8)])
            killer.join()
        finally:
            if node in ray_cluster.list_all_nodes():
                ray_cluster.remove_node(node)
        np.testing.assert_allclose([result["y"] for result in results], np.linspace(2.0, 4.0, 8))
        assert len(set(executor.nodes)) == 1
    assert "lost a worker" in (tmp_path / "logs" / "ray.log").read_text()


@pytest.mark.slow
def test_a_map_waits_when_every_node_has_left(ray_cluster: Any, tmp_path: Path) -> None:
    large = Cluster(cpus=3)  # more than the head has
    with (
        pytest.raises(BadInput, match=r"^no node of this Ray has 3 CPUs to give\.$"),
        on_ray("double", {}, None, cluster=large),
    ):
        pass
    node = ray_cluster.add_node(num_cpus=3, include_dashboard=False)
    results: list[Any] = []
    with on_ray("slow", {"folder": str(tmp_path)}, None, cluster=large) as executor:
        executor.map([{"seconds": np.asarray(0.1)}])
        (before,) = executor.nodes
        requests = [{"seconds": np.asarray(seconds)} for seconds in (1.5, 0.25)]
        # In a thread, as Ray starts nodes from the main one only.
        mapping = threading.Thread(target=lambda: results.extend(executor.map(requests)))
        mapping.start()
        time.sleep(0.5)
        ray_cluster.remove_node(node, allow_graceful=False)
        assert mapping.is_alive()
        node = ray_cluster.add_node(num_cpus=3, include_dashboard=False)
        mapping.join(120)
        assert executor.nodes != [before]
    ray_cluster.remove_node(node)
    assert [float(result["y"]) for result in results] == [3.0, 0.5]


def long_epochs() -> Settings:
    """Return epochs of 120 shards: time for a second node to take part, and to leave amid one of them."""
    settings = preset(FAMILY, "smoke")
    return replace(settings, evolution=replace(settings.evolution, lifetimes=480, epochs=6))


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> EvolutionResult:
    """Evolve in this process: what every cluster is to give."""
    return evolve_run(create_run(long_epochs(), tmp_path_factory.mktemp("long") / "inline"), long_epochs(), "inline")


@pytest.mark.slow
def test_two_nodes_give_the_same_loss_as_one_process(
    ray_cluster: Any, second_node: Any, inline: EvolutionResult, tmp_path: Path
) -> None:
    evolved = evolve_run(create_run(long_epochs(), tmp_path / "ray"), long_epochs(), "ray")
    assert evolved.loss_sha256 == inline.loss_sha256
    np.testing.assert_array_equal(evolved.phi, inline.phi)
    log = (tmp_path / "ray" / "logs" / "ray.log").read_text()
    assert len(set(re.findall("a worker on node ([0-9a-f]+) gave its first answer", log))) == 2


# The command.


def epg(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "epg", "evolve", FAMILY, "--preset", "smoke", *map(str, arguments)]


@pytest.mark.slow
def test_a_node_killed_amid_an_epoch_changes_no_bit_of_the_loss(
    ray_cluster: Any, second_node: Any, inline: EvolutionResult, tmp_path: Path
) -> None:
    command = epg("--executor", "ray", "--address", ray_cluster.address, "--run", tmp_path / "ray", "--json")
    command += ["--evolution.lifetimes", "480", "--evolution.epochs", "6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        metrics = tmp_path / "ray" / "metrics.jsonl"
        assert wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, 180)
        ray_cluster.remove_node(second_node, allow_graceful=False)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert json.loads(out)["loss_sha256"] == inline.loss_sha256  # one line, and nothing of Ray's
    assert "lost a worker" in (tmp_path / "ray" / "logs" / "ray.log").read_text()
    said = [line for line in err.splitlines() if line and not line.startswith(("loss ", "report ", "use it "))]
    assert [line for line in said if FAMILY not in line] == []  # the bar only


@pytest.mark.slow
def test_the_run_ends_in_a_sentence_when_its_own_node_dies(tmp_path: Path) -> None:
    """Ray does nothing more for a process whose node is gone: without the sentence, the run would wait for ever."""
    run = tmp_path / "run"
    command = epg("--executor", "ray", "--run", run, "--evolution.epochs", 100000)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            metrics = run / "metrics.jsonl"
            assert wait_until(lambda: metrics.exists() and metrics.stat().st_size > 0, 180)
            (node,) = (pid for pid in offspring(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "raylet\n")
            os.kill(node, signal.SIGKILL)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "Traceback" not in said
    assert (
        f"epg: the Ray node of this process is gone: resume the run on a living one (see {run}/logs/ray.log)." in said
    )
    assert (run / "loss.json").exists()  # what was evolved so far


def offspring(pid: int) -> set[int]:
    """Return every process that descends from `pid`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.parametrize(
    "blow", [signal.SIGINT, *(pytest.param(it, marks=pytest.mark.slow) for it in (signal.SIGTERM, signal.SIGKILL))]
)
def test_nothing_of_a_runs_own_ray_is_left_running(blow: signal.Signals, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = epg("--executor", "ray", "--run", run, "--evolution.epochs", 100000)
    # A session of its own: the blow falls on the group, as Ctrl-C in a terminal does.
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0, 180)
        pids = offspring(process.pid)
        assert len(pids) > 3
        os.killpg(process.pid, blow) if blow == signal.SIGINT else process.send_signal(blow)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    # Killed without a chance to clean up: Ray's reaper ends what computes at once, its agents time out after 60 s.
    patience = 120 if blow == signal.SIGKILL else 30
    assert wait_until(lambda: not any(map(alive, pids)), patience), [pid for pid in pids if alive(pid)]
    if blow != signal.SIGKILL:
        assert process.returncode == 128 + blow
        assert "SIGTERM" not in said  # as Ray's own handler says it
        assert "Traceback" not in said
        assert said.rstrip().endswith(f"epg evolve {FAMILY} --run {run} --resume --executor ray")


def test_a_signal_that_rays_own_handler_takes_while_it_starts_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        sys.exit(signal.SIGTERM)  # as that handler does

    monkeypatch.setattr(ray_executor.ray, "init", init)
    monkeypatch.setattr(ray_executor.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_executor.ray, "shutdown", lambda: None)
    session = ray_executor._Session(Cluster(), 1)
    with pytest.raises(KeyboardInterrupt) as stopped:
        session.open()
    assert exit_code(stopped.value) == 143


# What cannot work is said in one sentence, before anything is written.


def test_without_ray_installed_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None\nfrom epg.cli import main; main(sys.argv[1:])"
    arguments = epg("--executor", "ray", "--run", tmp_path / "run")[3:]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "epg: the executor ray needs Ray, which is not installed: install epg[ray].\n",
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["nonsense", "ray://head:10001", "head:port", ":6379", "head:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"is not the address of a Ray cluster: give HOST:PORT of its head, or auto\.$"):
        check_address(address)


def test_an_address_that_does_not_answer_leaves_no_run(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        command = epg("--executor", "ray", "--address", address, "--run", tmp_path / "run")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"epg: no Ray answers at {address}: Connection refused.\n")
    assert not (tmp_path / "run").exists()


def test_what_answers_but_is_no_ray_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(BadInput, match=f"^no Ray answers at {address}: what listens there is something else"):
            check_address(address, patience=4.0)


def test_auto_without_a_ray_on_this_machine_says_so(tmp_path: Path) -> None:
    """In a namespace of its own, as other tests have a Ray running: one without their processes."""
    said = _alone(tmp_path, "auto")
    assert said == "no Ray runs on this machine: start one with `ray start`, or leave out the address."


@pytest.mark.slow
def test_a_machine_that_is_no_node_of_the_cluster_says_so(ray_cluster: Any, tmp_path: Path) -> None:
    """Slow, because Ray itself looks for 10 seconds."""
    said = _alone(tmp_path, address := ray_cluster.address)
    assert said == (
        f"no Ray answers at {address}, or this machine is not its node: `ray start --address={address}` makes it one."
    )


def _alone(tmp_path: Path, address: str) -> str:
    """Return how an address is refused where no process of a Ray is to be seen."""
    alone = unshare("--pid", "--fork", "--mount-proc")
    code = "import sys; from epg.executors.ray import check_address; check_address(sys.argv[1])"
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*alone, sys.executable, "-c", code, address], capture_output=True, text=True, timeout=120, env=environment
    )
    return done.stderr.splitlines()[-1].removeprefix("epg.core.errors.BadInput: ")


@pytest.mark.slow
def test_a_ray_that_wants_another_token_says_so(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow, because Ray itself tries for 20 seconds."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another")
    with pytest.raises(BadInput, match=r"wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"):
        check_address(ray_cluster.address, patience=60)


def test_an_address_is_for_ray_only_and_for_programs_without_one(ray_cluster: Any) -> None:
    with pytest.raises(BadInput, match="for the executor ray only"):
        check_executor("local", None, Cluster("auto"))
    with (
        pytest.raises(BadInput, match="connected to a Ray already"),
        on_ray("double", {}, cluster=Cluster(ray_cluster.address)),
    ):
        pass


@pytest.mark.parametrize("cpus", [0.0, -1.0, 1e-5, 1.5, float("nan")])
def test_impossible_shares_of_a_cpu_are_refused(cpus: float) -> None:
    with pytest.raises(BadInput, match="cpus per worker must be"):
        Cluster(cpus=cpus)


# The page on scaling.


def test_the_page_on_scaling_is_what_its_tool_writes() -> None:
    root = Path(__file__).parents[1]
    specification = importlib.util.spec_from_file_location("measure_scaling", root / "tools" / "measure_scaling.py")
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    measured = tool.Measured(**json.loads((root / "docs" / "scaling.json").read_text()))
    assert (root / "docs" / "scaling.md").read_text() == tool.page(measured)
    shard, seconds, share = tool.predict(measured, 16, 256)
    assert shard == 16
    assert seconds > 16 * 8192 * tool.SECONDS_PER_STEP  # never faster than the computing alone
    assert 0 < share < 1
