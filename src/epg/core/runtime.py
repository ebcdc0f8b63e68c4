"""How numbers are computed: environment variables of a process, and the one `jit` that everything is compiled with.

The variables count only if they are set before JAX is imported, so JAX is imported inside functions.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# One single-threaded process per core beats threads within a process (docs/performance.md).
SINGLE_THREADED = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

# Level 1 compiles a lifetime in half the time of the default and runs equally fast; one thread keeps results
# bit-identical in every process and leaves the other cores to other shards.
COMPILER = {"xla_backend_optimization_level": 1, "xla_cpu_multi_thread_eigen": False}

_THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def single_threaded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` with one thread per process and JAX's defaults; what a user chose is kept."""
    result = dict(environment)
    flags = result.get("XLA_FLAGS", "")
    if SINGLE_THREADED not in flags:
        result["XLA_FLAGS"] = f"{flags} {SINGLE_THREADED}".strip()
    result.update(dict.fromkeys(_THREAD_COUNTS, "1"))
    result.setdefault("JAX_PLATFORMS", "cpu")
    result.setdefault("JAX_COMPILATION_CACHE_DIR", str(compilation_cache_directory()))
    # Small programs too: an evolution begins with a hundred of them, which take ten seconds to compile.
    result.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    result.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return result


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile with the project's compiler options, as far as XLA_FLAGS does not set them; `options` are `jax.jit`'s."""
    import jax

    chosen = {name: value for name, value in COMPILER.items() if f"--{name}=" not in os.environ.get("XLA_FLAGS", "")}
    compiled: Callable[..., Any] = jax.jit(function, compiler_options=chosen, **options)
    return compiled


def use_single_thread() -> bool:
    """Compute in one thread, on the CPU, with compiled programs kept on disk, as the command line and workers do.

    Call it before anything imports JAX; returns False if that is too late. No verb of the API calls it.
    """
    if "jax" in sys.modules:
        return False
    os.environ.update(single_threaded_environment(os.environ))
    return True


def compilation_cache_directory() -> Path:
    """Return where compiled programs are kept between processes: $EPG_CACHE, or ~/.cache/epg/xla."""
    chosen = os.environ.get("EPG_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "epg" / "xla"


def drop_damaged_programs(directory: Path) -> None:
    """Delete the compiled programs that changed since the last look and cannot be read.

    JAX compiles what it cannot read, but keeps the damaged entry: it would compile at every start.
    """
    with contextlib.suppress(OSError):  # no cache yet, or none of ours
        stamp = directory / ".checked"
        checked = stamp.stat().st_mtime - 1.0 if stamp.exists() else 0.0  # clocks of file systems are coarse
        entries = [it for it in os.scandir(directory) if it.name.endswith("-cache")]
        stamp.touch()
        for entry in entries:
            if entry.stat().st_ctime >= checked and _is_damaged(Path(entry.path)):
                os.unlink(entry.path)


def _is_damaged(path: Path) -> bool:
    data = path.read_bytes()
    try:
        return len(data) == 0 or (data[0] == 0x78 and not zlib.decompress(data))  # JAX may have used another format
    except zlib.error:
        return True
