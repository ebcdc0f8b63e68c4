"""The live page: what it is told, who may ask, what its script draws, and all of it in a browser."""

import http.client
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import browse, needs_browser, run_script
from PIL import Image

from epg.cli import main
from epg.core.errors import BadInput
from epg.settings import Settings, to_dict
from epg.storage.metrics import GROUPS, MetricsWriter, tag_of
from epg.storage.run import RUN_FORMAT, Run
from epg.viz.watch import PAGE, WatchServer, snapshot

EPOCH = {"fitness_mean": 1.0, "fitness_best": 3.0, "fitness_worst": -2.0, "signal": 0.25, "alpha": 0.0}
EPOCH |= {"phi_norm": 5.0, "env_steps": 600, "seconds": 2.0, "cosine": {"head: memory": 0.5}}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    settings = to_dict(Settings(family="point-goal"))
    return Run.create(
        tmp_path / "run", {"format": RUN_FORMAT, "kind": "evolve", "family": "point-goal", "settings": settings}
    )


@pytest.fixture
def server(run: Run) -> Iterator[WatchServer]:
    with WatchServer(run.path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server: WatchServer, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_page_follows_the_run(run: Run, server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/")[1] == PAGE.read_bytes()
    assert json.loads(ask(server, "/data.json")[1])["rows"] == []
    assert ask(server, "/film.png")[0] == 404
    with MetricsWriter(run) as metrics:
        for epoch in range(3):
            metrics.write(epoch, {**EPOCH, "fitness_mean": float("nan") if epoch == 1 else epoch})
            data = json.loads(ask(server, "/data.json")[1])
            assert [row["epoch"] for row in data["rows"]] == list(range(epoch + 1))
    assert [row["fitness_mean"] for row in data["rows"]] == [0, None, 2]
    assert (data["family"], data["epochs"], data["rows"][0]["rate"], data["film"]) == ("point-goal", 100, 300.0, None)
    assert (data["env_steps"], data["phi"], data["blocks"]) == (1800, [], {"head: memory": 0.5})
    assert data["film_hint"] == ""  # there is no loss to film with
    (run.path / "loss.json").write_text("{}")
    assert f"`epg render {run.path}`" in json.loads(ask(server, "/data.json")[1])["film_hint"]
    (run.path / "film").mkdir()
    (run.path / "film" / "strip.png").write_bytes(b"picture")
    assert ask(server, "/film.png?x") == (200, b"picture")
    assert json.loads(ask(server, "/data.json")[1])["film"].startswith("film-")
    (run.path / "first" / "film").mkdir(parents=True)
    (run.path / "first" / "film" / "strip.png").write_bytes(b"of the first loss")
    assert ask(server, "/film.png") == (200, b"of the first loss")


def test_nothing_else_is_served_and_nobody_else_is_answered(run: Run, server: WatchServer) -> None:
    for path in ("/config.json", "/../config.json", "/%2e%2e/config.json", "/film/strip.png", "//etc/passwd"):
        assert ask(server, path)[0] == 404
    assert ask(server, "/data.json", host="evil.example:80")[0] == 403
    port = server.server_address[1]
    assert ask(server, "/data.json", host=f"localhost:{port}")[0] == 200
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json"]  # a watcher writes nothing


def test_damage_is_told_and_a_long_run_is_thinned(run: Run, server: WatchServer) -> None:
    line = json.dumps({"epoch": 0, **EPOCH})
    run.metrics.write_text("".join(line.replace('"epoch": 0', f'"epoch": {n}') + "\n" for n in range(2500)))
    rows = snapshot(run)["rows"]
    assert len(rows) <= 1000
    assert snapshot(run)["env_steps"] == 2500 * 600  # of all epochs, also those that are not sent
    assert rows[-1]["epoch"] == 2499
    run.metrics.write_text("x\n" + line + "\n")
    status, text = ask(server, "/data.json")
    assert (status, b"damaged" in text) == (500, True)


@pytest.mark.parametrize(
    ("kind", "port", "sentence"), [("learn", 0, "is not an evolution"), ("evolve", 70000, "a port")]
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, kind: str, port: int, sentence: str) -> None:
    Run.create(tmp_path / "run", {"format": RUN_FORMAT, "kind": kind, "family": "x"})
    with pytest.raises(BadInput, match=sentence):
        WatchServer(tmp_path / "run", port)


@pytest.mark.parametrize("settings", [None, [], {"evolution": []}, {"evolution": {"lifetimes": "x"}}])
def test_a_damaged_config_is_refused_at_once(tmp_path: Path, settings: object) -> None:
    config = {"format": RUN_FORMAT, "kind": "evolve", "family": "x", "settings": settings}
    Run.create(tmp_path / "run", config)
    with pytest.raises(BadInput, match=r"config\.json is damaged"):
        WatchServer(tmp_path / "run").server_close()


def test_a_taken_port_is_refused(run: Run, server: WatchServer, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["watch", str(run.path), "--port", str(server.server_address[1])])
    assert end.value.code == 2
    assert "cannot be used" in capsys.readouterr().err


def test_the_script_draws_what_it_is_told(tmp_path: Path) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script += """
const row = (epoch, mean, best) =>
  ({epoch, fitness_mean: mean, fitness_best: best, alpha: 0, signal: null});
const rows = [row(0, 0, 10), row(1, null, 10), row(2, 5, 10)];
const fitness = chart(rows, CHARTS[0][1]);
console.log(JSON.stringify({
  lines: (fitness.match(/<polyline/g) || []).length,
  points: fitness.match(/points="([^"]*)"/)[1].split(" "),
  zero: chart(rows, CHARTS[1][1]), one: chart([row(0, 1, 1)], CHARTS[0][1]).includes("<circle"),
  ticks: ticks(0, 10), state: state({rows, epochs: 9, age: 4, env_steps: 15e5}), waiting: state({rows: [], epochs: 9}),
  panels: drawn({rows, phi: [[0, 7, 1], [10, 8, 1]], blocks: {"a<b": -0.5}}),
  none: drawn({rows: [], phi: [], blocks: {}}),
}));"""
    drawn = run_script(script, tmp_path)
    assert drawn["lines"] == 2  # the worst was not told
    assert drawn["points"] == ["62.0,180.0", "502.0,101.0"]  # by hand: 0 at the bottom, 5 of 0..10 half way up
    assert drawn["zero"] == ""  # no panel that is all zero
    assert drawn["one"] is True
    assert drawn["ticks"] == [0, 5, 10]
    assert drawn["state"] == "3 of 9 epochs, 1.50 M environment steps, silent for 4 s"
    assert drawn["waiting"] == "waiting for the first epoch"
    titles, pictures = zip(*drawn["panels"], strict=True)
    assert [title.split(":")[0] for title in titles] == ["Fitness", "Fitness of phi itself", "Signal per block of phi"]
    assert 'x="255.0"' in pictures[2]  # by hand: from 330 down by half of 150
    assert 'width="75.0"' in pictures[2]
    assert "a&#60;b" in pictures[2]
    assert drawn["none"] == []


@needs_browser
def test_a_browser_shows_a_run_as_it_goes_on(
    run: Run, server: WatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the page asks, the run is an epoch further."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    (run.path / "film").mkdir()
    (run.path / "film" / "strip.png").write_bytes(picture.getvalue())
    asked, answer = [], server.answer
    with MetricsWriter(run) as metrics:

        def after_an_epoch(path: str) -> tuple[int, str, bytes]:
            asked.append(path)
            if path == "/data.json":
                metrics.write(asked.count(path) - 1, {**EPOCH, "phi_fitness": 2.0, "phi_fitness_error": 0.1})
            return answer(path)

        monkeypatch.setattr(server, "answer", after_an_epoch)
        shown = browse(server.url, tmp_path / "browser", "--dump-dom").split("<script>")[0]
    (done,) = re.findall(r"(\d+) of 100 epochs, [\d.]+ M environment steps", shown)
    assert 2 <= int(done) <= asked.count("/data.json")  # it has asked again by itself
    assert "<title>point-goal: " in shown
    panels = ["Fitness", "Fitness of phi itself", "Signal", "Norm of phi", "Environment steps per second"]
    assert re.findall(r"<h2>([^<:]*)", shown) == [*panels, "Signal per block of phi"]
    assert shown.count("<polyline") == 7  # guidance is zero: no line
    assert asked.count("/film.png") == 1
    assert 'hidden=""' not in shown


def test_tensorboard_groups_its_tags() -> None:
    assert tag_of("fitness_best") == "fitness/fitness_best"
    assert tag_of("note") == "note"
    assert len({name for names in GROUPS.values() for name in names}) == sum(map(len, GROUPS.values()))
