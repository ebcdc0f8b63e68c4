"""Executors: order, errors, dead workers, and that nothing is left running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epg.core.errors import BadInput
from epg.core.runtime import (
    SINGLE_THREADED,
    compilation_cache_directory,
    drop_damaged_programs,
    single_threaded_environment,
    use_single_thread,
)
from epg.executors import EXECUTORS, ExecutorFailed, LocalExecutor, make_executor, pool
from epg.executors import local as local_executor

EVERY_EXECUTOR = pytest.mark.parametrize("name", sorted(EXECUTORS))


@pytest.fixture(autouse=True)
def one_cluster_for_all(request: pytest.FixtureRequest) -> None:
    """Let the executor ray find a cluster: starting one for each test would take minutes."""
    if "name" in request.fixturenames and request.getfixturevalue("name") == "ray":
        request.getfixturevalue("ray_cluster")


def numbers(*values: float) -> list[dict[str, np.ndarray]]:
    return [{"x": np.asarray(value)} for value in values]


def local(function: str, config: dict[str, Any], processes: int = 2, log_dir: Path | None = None) -> LocalExecutor:
    executor = make_executor("local", f"workloads:{function}", config, processes, log_dir)
    assert isinstance(executor, LocalExecutor)
    return executor


def state(pid: int) -> str:
    """Return the letter that Linux gives a process: T stopped, Z dead but unburied; X here when gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def alive(pid: int) -> bool:
    return state(pid) not in "XZ"


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# The contract, over the registry.


@EVERY_EXECUTOR
def test_results_keep_the_order_values_dtypes_and_shapes(name: str) -> None:
    requests = [{"x": np.full((2, n), n, np.float32)} for n in range(5)] + numbers(7)
    done: list[int] = []
    with make_executor(name, "workloads:double", {"factor": 2}, 2) as executor:
        results = executor.map(requests, done.append)
        again = executor.map(requests[:1])
    for request, result in zip(requests, results, strict=True):
        np.testing.assert_array_equal(result["y"], 2 * request["x"], strict=True)
    assert again[0]["y"].shape == (2, 0)
    assert sorted(done) == [0, 1, 2, 3, 4, 5]


@EVERY_EXECUTOR
def test_nothing_to_do_gives_nothing(name: str) -> None:
    with make_executor(name, "workloads:double", {"factor": 2}, 1) as executor:
        assert executor.map([]) == []


@EVERY_EXECUTOR
def test_an_error_tells_its_text_and_the_executor_goes_on(name: str) -> None:
    with make_executor(name, "workloads:fail", {}, 1) as executor:
        (before,) = executor.map(numbers(5))
        with pytest.raises(ExecutorFailed, match="workloads:fail failed: ZeroDivisionError: one is not allowed"):
            executor.map(numbers(1))
        with pytest.raises(BadInput, match=r"^two is a bad input\.$"):
            executor.map(numbers(2))
        (after,) = executor.map(numbers(6))
    assert after["y"] == 6
    assert after["pid"] == before["pid"]


@EVERY_EXECUTOR
def test_an_error_of_build_passes(name: str) -> None:
    with (
        make_executor(name, "workloads:fail_building", {}, 1) as executor,
        pytest.raises(BadInput, match=r"^this cannot be built\.$"),
    ):
        executor.map(numbers(5))


@EVERY_EXECUTOR
@pytest.mark.parametrize(("build", "text"), [("no_such_module:f", "no_such_module"), ("workloads:no_such", "no_such")])
def test_work_that_does_not_exist_is_named(name: str, build: str, text: str) -> None:
    with make_executor(name, build, {}, 1) as executor, pytest.raises(ExecutorFailed, match=text):
        executor.map(numbers(5))


@EVERY_EXECUTOR
def test_every_executor_shows_the_work_the_same_config(name: str) -> None:
    with make_executor(name, "workloads:double", {"factor": (1, 2)}, 1) as executor:
        (result,) = executor.map(numbers(2))  # a tuple arrives as the list that JSON makes of it
    np.testing.assert_array_equal(result["y"], [2, 4])


def test_bad_descriptions_are_refused() -> None:
    with pytest.raises(BadInput, match="no executor 'ray2'"):
        make_executor("ray2", "workloads:double", {})
    with pytest.raises(BadInput, match="module:function"):
        make_executor("inline", "workloads", {})
    with pytest.raises(BadInput, match="plain JSON"):
        make_executor("inline", "workloads:double", {"x": float("nan")})
    with pytest.raises(BadInput, match="processes must be above zero"):
        make_executor("local", "workloads:double", {}, 0)


# The local executor: processes.


def test_a_late_first_result_does_not_change_the_order(tmp_path: Path) -> None:
    done: list[int] = []
    with local("patient", {"folder": str(tmp_path), "others": 3}) as executor:
        results = executor.map(numbers(0, 1, 2, 3), done.append)
    assert [int(result["y"]) for result in results] == [0, 2, 4, 6]
    assert done.index(0) > 1  # the free worker took the others meanwhile


def test_workers_are_single_threaded_and_lead_their_own_session() -> None:
    with local("environment", {}, 1) as executor:
        (result,) = executor.map(numbers(0))
    assert result["single"]
    assert result["session"] == result["pid"] != os.getpid()


def test_a_worker_that_dies_is_replaced_and_its_request_repeated(tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    config = {"folder": str(tmp_path / "flags"), "times": 2}
    with local("die", config, 1, tmp_path / "logs") as executor:
        before = executor.pids
        results = executor.map(numbers(*range(6)))
        assert executor.pids != before
    assert [int(result["y"]) for result in results] == [0, 2, 4, 6, 8, 10]
    assert (tmp_path / "logs" / "worker-0.log").read_text().count("about to die") == 2


def test_a_request_that_always_kills_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    config = {"folder": str(tmp_path / "flags"), "times": 99}
    with local("die", config, 2, tmp_path / "logs") as executor:
        with pytest.raises(ExecutorFailed, match=r"cost 3 workers .*logs/worker-\d\.log"):
            executor.map(numbers(3))
        (result,) = executor.map(numbers(4))
    assert result["y"] == 8
    assert len(list((tmp_path / "flags").iterdir())) == 3


def test_work_that_kills_while_building_is_given_up() -> None:
    with (
        local("die_building", {}, 1) as executor,
        pytest.raises(
            ExecutorFailed, match=r"cost 3 workers with one request; of the last: it died \(no log was kept\)"
        ),
    ):
        executor.map(numbers(0))


def test_a_worker_killed_amid_a_request_changes_no_result(tmp_path: Path) -> None:
    requests = [{"seconds": np.asarray(seconds)} for seconds in (0.5, 0.4, 0.3)]
    with local("slow", {"folder": str(tmp_path)}) as executor:
        killed = executor.pids[0]

        def kill_once_begun() -> None:
            if wait_until((tmp_path / str(killed)).exists):
                os.kill(killed, signal.SIGKILL)

        thread = threading.Thread(target=kill_once_begun)
        thread.start()
        results = executor.map(requests)
        thread.join()
        assert killed not in executor.pids
    assert [float(result["y"]) for result in results] == [1.0, 0.8, 0.6]
    assert len(list(tmp_path.iterdir())) == 3  # two first workers and a third for the killed one


def test_a_worker_killed_while_idle_is_replaced() -> None:
    with local("double", {"factor": 3}, 1) as executor:
        executor.map(numbers(0))
        old = executor.pids[0]
        os.kill(old, signal.SIGKILL)
        assert wait_until(lambda: not alive(old))
        (result,) = executor.map(numbers(5))
    assert result["y"] == 15
    assert result["pid"] != old


def test_late_answers_to_a_failed_map_are_not_taken_for_new_ones() -> None:
    with local("slow", {}) as executor:
        with pytest.raises(ExecutorFailed, match="KeyError"):
            executor.map([{"seconds": np.asarray(0.5)}, {"no": np.asarray(0)}])
        results = executor.map([{"seconds": np.asarray(s)} for s in (0.1, 0.2, 0.3, 0.4)])
    np.testing.assert_allclose([result["y"] for result in results], [0.2, 0.4, 0.6, 0.8])


def test_a_failure_names_the_log_with_the_traceback(tmp_path: Path) -> None:
    with (
        local("fail", {}, 1, tmp_path) as executor,
        pytest.raises(ExecutorFailed, match=rf"see {tmp_path}/worker-0\.log"),
    ):
        executor.map(numbers(1))
    assert "Traceback" in (tmp_path / "worker-0.log").read_text()


def test_an_interrupt_ends_busy_workers_at_once(tmp_path: Path) -> None:
    raised: list[float] = []

    def interrupt(_: int) -> None:
        raised.append(time.monotonic())
        raise KeyboardInterrupt

    executor = local("slow", {"folder": str(tmp_path)})
    with executor:
        pids = executor.pids
        with pytest.raises(KeyboardInterrupt):
            executor.map([{"seconds": np.asarray(seconds)} for seconds in (60.0, 0.1)], interrupt)
        assert time.monotonic() - raised[0] < 1.5
        assert not any(map(alive, pids))
        assert executor.pids == []
    with pytest.raises(ExecutorFailed, match="closed"):
        executor.map(numbers(1))


def test_a_worker_deep_in_c_ends_at_once(tmp_path: Path) -> None:
    ended: list[float] = []
    main = threading.get_ident()

    def close_once_begun() -> None:
        if wait_until((tmp_path / "begun").exists):
            began = time.monotonic()
            signal.pthread_kill(main, signal.SIGINT)  # a Ctrl-C while the main thread waits in map
            assert wait_until(lambda: not alive(pid))
            ended.append(time.monotonic() - began)

    with local("deaf", {"folder": str(tmp_path)}, 1) as executor:
        (pid,) = executor.pids
        thread = threading.Thread(target=close_once_begun)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            executor.map(numbers(0))
        thread.join()
    assert len(ended) == 1
    assert ended[0] < 1.5


def test_a_worker_that_does_not_stop_when_asked_is_killed() -> None:
    with local("double", {"factor": 2}, 1) as executor:
        executor.map(numbers(1))
        (pid,) = executor.pids
        os.kill(pid, signal.SIGSTOP)  # now deaf to SIGTERM and to its socket
        assert wait_until(lambda: state(pid) == "T")
        began = time.monotonic()
    assert 1.5 < time.monotonic() - began < 4
    assert not alive(pid)


def test_close_leaves_no_process() -> None:
    with local("double", {"factor": 2}) as executor:
        pids = executor.pids
        executor.map(numbers(1))
        assert all(map(alive, pids))
        began = time.monotonic()
    assert time.monotonic() - began < 1.5
    assert not any(map(alive, pids))


# Workers that stop answering.


def test_a_stopped_worker_is_done_without_and_then_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "STUCK_SECONDS", 2.0)
    with local("slow", {"folder": str(tmp_path)}) as executor:
        executor.map([{"seconds": np.asarray(0.1)}] * 6)
        stopped, _ = executor.pids
        os.kill(stopped, signal.SIGSTOP)
        began = time.monotonic()
        results = executor.map([{"seconds": np.asarray(0.1)}] * 6)  # the other worker does it all
        assert [float(result["y"]) for result in results] == [0.2] * 6
        while alive(stopped):
            assert time.monotonic() - began < 30
            executor.map([{"seconds": np.asarray(0.1)}])
        assert len(executor.map([{"seconds": np.asarray(0.1)}] * 6)) == 6
    assert "a worker is replaced: no answer for" in caplog.text


@pytest.mark.parametrize("answered", [True, False], ids=["then", "from the first"])
def test_work_that_hangs_is_repeated_and_given_up(
    answered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "STUCK_SECONDS" if answered else "FIRST_SECONDS", 1.5)
    with local("slow", {}, 1, tmp_path) as executor:
        if answered:
            executor.map([{"seconds": np.asarray(0.01)}] * 2)
        hint = r"cost 3 workers with one request; of the last: no answer for \d s.*\(see .*worker-0\.log\)"
        with pytest.raises(ExecutorFailed, match=hint):
            executor.map([{"seconds": np.asarray(600.0)}])


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not tell who waits for a core")
def test_a_worker_that_waits_for_a_core_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool, "STUCK_SECONDS", 1.0)
    core = {min(os.sched_getaffinity(0))}
    with local("burn", {}, 1) as executor, contextlib.ExitStack() as stack:
        executor.map([{"seconds": np.asarray(0.01)}] * 2)
        (worker,) = executor.pids
        os.sched_setaffinity(worker, core)
        for _ in range(4):  # others that want the same core
            endless = [sys.executable, "-S", "-c", "while True: pass"]
            other = stack.enter_context(subprocess.Popen(endless, start_new_session=True))
            stack.callback(other.kill)
            os.sched_setaffinity(other.pid, core)
        began = time.monotonic()
        executor.map([{"seconds": np.asarray(0.7)}])
        assert time.monotonic() - began > 2.0  # so it had to wait for longer than is allowed
        assert executor.pids == [worker]
    assert "replaced" not in caplog.text


def test_a_worker_stopped_while_idle_does_not_block_a_large_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_executor, "MESSAGE_SECONDS", 2)
    large = [{"x": np.zeros(2_000_000)}]  # more than a socket holds
    with local("double", {"factor": 2}, 1) as executor:
        executor.map(large)
        os.kill(executor.pids[0], signal.SIGSTOP)
        assert executor.map(large)[0]["y"].shape == (2_000_000,)


ORPHANING = """
import numpy as np
from epg.executors import make_executor
with make_executor("local", "workloads:slow", {"folder": FOLDER}, 2) as executor:
    executor.map([{"seconds": np.asarray(60.0)}])
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_workers_busy_or_idle_end_when_their_parent_is_killed(stopped: bool, tmp_path: Path) -> None:
    code = ORPHANING.replace("FOLDER", repr(str(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as parent:
        try:
            assert wait_until(lambda: any(tmp_path.iterdir()), 20)
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
            pids = [int(pid) for pid in children.split()]
            assert len(pids) == 2
            assert all(map(alive, pids))
            for pid in pids if stopped else ():
                os.kill(pid, signal.SIGSTOP)
        finally:
            parent.kill()
    assert wait_until(lambda: not any(map(alive, pids)), 5)


def test_importing_executors_loads_no_jax() -> None:
    code = "import sys, epg.executors.worker, epg.storage.metrics; sys.exit('jax' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


# The environment of a worker.


def test_the_environment_keeps_what_a_user_chose_and_is_its_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPG_CACHE", "/cache")
    chosen = {"XLA_FLAGS": "--xla_dump_to=/d", "JAX_PLATFORMS": "cuda", "OMP_NUM_THREADS": "8", "HOME": "/h"}
    result = single_threaded_environment(chosen)
    assert result["XLA_FLAGS"] == f"--xla_dump_to=/d {SINGLE_THREADED}"
    assert (result["JAX_PLATFORMS"], result["HOME"], result["OMP_NUM_THREADS"]) == ("cuda", "/h", "1")
    assert result["JAX_COMPILATION_CACHE_DIR"] == "/cache"
    assert single_threaded_environment(result) == result
    assert chosen["OMP_NUM_THREADS"] == "8"


def test_the_environment_is_only_set_while_jax_can_still_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in single_threaded_environment({}):
        monkeypatch.setenv(name, "0")  # so that monkeypatch puts every one of them back
    monkeypatch.setitem(sys.modules, "jax", sys)
    assert not use_single_thread()
    assert os.environ["OMP_NUM_THREADS"] == "0"
    monkeypatch.delitem(sys.modules, "jax")
    assert use_single_thread()
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_damaged_programs_are_dropped(tmp_path: Path) -> None:
    program = zlib.compress(b"program" * 1000)
    for name, data in {
        "good": program,
        "cut": program[:-5],
        "flipped": program[:9] + b"?" + program[10:],
        "": b"",
    }.items():
        (tmp_path / f"jit_{name}-cache").write_bytes(data)
    (tmp_path / "other").write_bytes(b"x")
    drop_damaged_programs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"jit_good-cache", "other", ".checked"}
    (tmp_path / "jit_good-cache").write_bytes(program[:20])  # damaged later
    os.utime(tmp_path / "jit_good-cache", (0, 0))  # by something that keeps times, as cp -p does
    drop_damaged_programs(tmp_path)
    assert not (tmp_path / "jit_good-cache").exists()
    drop_damaged_programs(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_compiled_programs_have_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("EPG_CACHE", raising=False)
    assert compilation_cache_directory() == Path("/home/somebody/.cache/epg/xla")
    monkeypatch.setenv("EPG_CACHE", "/elsewhere")
    assert compilation_cache_directory() == Path("/elsewhere")
