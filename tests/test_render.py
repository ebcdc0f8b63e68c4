"""Films and pictures: filmed episodes are those of the lifetime, what is drawn, and what is said where nothing is."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import epg
from epg.lifetime.env_step import actor_of
from epg.methods import filming, pictures
from epg.evaluation.protocol import with_length
from epg.evolution.worker import batch_of_lifetimes, make_plan
from epg.viz import camera
from epg.families import REGISTRY, load_family
from epg.families.mujoco.base import MujocoFamily
from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.people import figures, film
from epg.cli import main
from epg.recipes import opponent, preset
from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, stream_key

ROOT = Path(__file__).parents[1]
FAMILY = "random-reacher"  # the quickest to compile and to draw
HAND = {"baseline": "ppo", "family": FAMILY, "updates": 2, "stages": 3}


@pytest.fixture(scope="module")
def can_draw():
    """Tell whether this machine can draw; if it cannot, the documented sentence is what must be said."""
    try:
        camera.find_backend()
    except BadInput as error:
        said = str(error)
    else:
        return True
    assert said == camera.NO_CAMERA
    return False


def colours(picture: np.ndarray) -> int:
    return len(np.unique(picture.reshape(-1, 3), axis=0))


def one_picture(name: str, index: int = 0) -> np.ndarray:
    posed = pictures.pose_tasks(name, 2)
    with camera.open_camera(posed.family, posed.tasks[index], (160, 120)) as eye:
        return eye.shoot(posed.poses[0])


@pytest.mark.parametrize("name", ["directional-hopper", "goal-ant"])
def test_a_task_is_drawn_or_the_sentence_is_said(name, can_draw, capsys):
    with capsys.disabled():
        print(f"\n{name}: {'drawn with ' + camera.find_backend() if can_draw else 'NOT drawn, ' + camera.NO_CAMERA}")
    if not can_draw:
        with pytest.raises(BadInput, match="neither EGL nor OSMesa works"):
            one_picture(name)
        return
    first, second = one_picture(name), one_picture(name, 1)
    assert first.shape == (120, 160, 3)
    assert first.dtype == np.uint8
    assert colours(first) > 50
    differ = (first != second).any(axis=2)  # the same pose: only the arrow, and the goal, are elsewhere
    assert 20 < differ.sum() < differ.size / 5


def probes(monkeypatch, works) -> list[str]:
    """Let only the named backends work, and write down which are tried."""
    tried = []

    def run(command, **_):
        name = command[-1].split("mujoco.")[1].split()[0]
        tried.append(name)
        return SimpleNamespace(returncode=0 if name in works else 1)

    monkeypatch.setattr(camera.subprocess, "run", run)
    monkeypatch.setattr(camera.platform, "system", lambda: "Linux")
    return tried


@pytest.mark.parametrize(
    ("chosen", "works", "tried", "answer"),
    [
        ("", {"egl", "osmesa"}, ["egl"], "egl"),
        ("", {"osmesa"}, ["egl", "osmesa"], "osmesa"),
        ("osmesa", {"egl", "osmesa"}, ["osmesa"], "osmesa"),
        ("", {}, ["egl", "osmesa"], camera.NO_CAMERA),
        ("egl", {}, ["egl"], "MUJOCO_GL=egl does not work here: unset it."),
        ("off", {"egl"}, [], "nothing can be drawn because MUJOCO_GL=off: unset it, or set it to egl or osmesa."),
    ],
)
def test_the_first_way_to_draw_that_works_is_chosen(monkeypatch, chosen, works, tried, answer):
    monkeypatch.setenv("MUJOCO_GL", chosen)
    seen = probes(monkeypatch, works)
    find = camera.find_backend.__wrapped__  # what it finds for these tests must not be remembered
    try:
        found = find()
    except BadInput as error:
        found = str(error)
    assert (seen, found) == (tried, answer)


def teacher() -> filming.Teacher:
    return filming.teach_by_hand(opponent(with_length(preset(FAMILY, "laptop"), 2), FAMILY), "ppo", FAMILY)


@pytest.fixture(scope="module")
def made() -> filming.Film:
    return filming.film(teacher(), FAMILY, seed=3, number=1, stages=3)


def test_the_film_is_of_the_lifetime_that_learn_runs(made):
    it, family = teacher(), load_family(FAMILY)
    plan = make_plan(it.settings, it.learner, family)
    run = batch_of_lifetimes(plan, family, 3, Split.HELD_OUT)
    outcome = run(np.zeros((1, 0), np.float32), np.array([1], np.int32), np.int32(0), np.float32(0))
    assert made.final == float(outcome.final_return[0])
    actor = actor_of(*jax.tree.map(lambda leaf: leaf[0], (outcome.policy, outcome.normaliser.observation)))
    score = stream_key(lifetime_key(3, Split.HELD_OUT, 0, 1), Stream.SCORE)
    returns = [
        filming.roll(plan, family, [actor], made.task, key, [0])[0].gained
        for key in jax.random.split(score, it.settings.lifetime.scoring_episodes)
    ]
    assert np.mean(returns) == pytest.approx(made.final, rel=1e-5)
    assert made.takes[-1].gained == pytest.approx(returns[0], rel=1e-5)
    assert [take.update for take in made.takes] == sorted({take.update for take in made.takes})
    assert made.takes[0].update == 0
    assert made.takes[-1].update == it.settings.lifetime.updates


def test_stages_begin_alike_and_only_the_policy_differs(made):
    first, *others = (take.poses for take in made.takes)
    assert first.shape == (51, 4)
    for other in others:
        np.testing.assert_array_equal(first[0], other[0])
        assert np.abs(first[-1] - other[-1]).max() > 1e-3
    np.testing.assert_array_equal(first[:, 2:], np.broadcast_to(first[0, 2:], (51, 2)))  # the target stays


def test_the_return_of_a_take_is_that_of_its_poses(made):
    for take in made.takes:
        lengths = np.array([0.1, 0.11]) * made.task.length
        angles = np.cumsum(take.poses[1:, :2], axis=1)
        tip = np.stack([np.cos(angles) @ lengths, np.sin(angles) @ lengths], axis=1)
        assert take.gained == pytest.approx(-np.linalg.norm(tip - take.poses[1:, 2:], axis=1).sum(), rel=1e-4)


def test_the_whole_lifetime_is_recorded(made):
    steps = teacher().settings.lifetime.steps
    assert made.trail.shape == (steps, 4)
    assert np.flatnonzero(made.restarts).tolist() == list(range(49, steps, 50))
    assert np.isfinite(made.trail).all()


def test_an_explosion_has_no_position():
    inner = SimpleNamespace(advance=lambda control, fresh, rows: np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0]]))
    recorder = filming.Recorder(inner, width=2)
    recorder.advance(np.zeros((2, 1)), np.zeros((2, 1)))
    np.testing.assert_array_equal(recorder.poses[0], [[1.0, 2.0], [np.nan, np.nan]])


def test_a_film_is_written_whole_or_not_at_all(tmp_path, can_draw):
    place = tmp_path / "film"
    if not can_draw:
        with pytest.raises(BadInput, match="neither EGL nor OSMesa works"):
            epg.render(**HAND, out=place)
        assert not place.exists()
        return
    result = epg.render(**HAND, out=place)
    written = sorted(path.name for path in place.iterdir())
    assert {"config.json", "film.json", "film.safetensors", "strip.png", "video.gif"} <= set(written)
    stages = json.loads((place / "film.json").read_text())["stages"]
    assert stages == result["stages"]
    with Image.open(place / "strip.png") as strip:
        assert strip.width > film.COLUMNS * film.SIZE[0]
        assert strip.height > len(stages) * film.SIZE[1]
        assert colours(np.asarray(strip.convert("RGB"))) > 50
    with Image.open(place / "video.gif") as video:
        assert video.n_frames > 10
    assert ("video.mp4" in written) == (result["hint"] is None)
    with pytest.raises(BadInput, match="already holds files: choose another --out"):
        epg.render(**HAND, out=place)


def test_a_video_shows_every_episode_to_its_end():
    def take(steps):
        return filming.Take(0, 0.0, True, np.zeros((steps + 1, 1)))

    family = SimpleNamespace(fast=SimpleNamespace(timestep=0.01, substeps=1))
    both = filming.Film(family, None, 0.0, (take(12), take(7)), np.zeros((0, 1)), np.zeros(0, bool))
    pace, steps = film.timeline(both)
    assert (pace, steps) == (0.05, [0, 5, 10, 12])
    eye = SimpleNamespace(shoot=lambda pose: np.full((1, 1, 3), 100, np.uint8))
    assert [shot[0, 0, 0] for shot in film._play(eye, both.takes[1], steps)] == [100, 100, 185, 185]
    assert len(film.timeline(replace(both, takes=(take(9000),)))[1]) <= film.MOST + 1


def test_mp4_where_ffmpeg_is_installed(capsys):
    frames = [Image.new("RGB", (64, 48), (value, 0, 0)) for value in range(0, 250, 25)]
    try:
        import imageio_ffmpeg  # noqa: F401
    except ModuleNotFoundError:
        with capsys.disabled():
            print("\nno MP4 here: imageio-ffmpeg is not installed")
        assert "epg[video]" in film.MP4_HINT
        return
    assert film.mp4(frames, 0.05)[4:8] == b"ftyp"


def test_paths_are_drawn_light_to_dark_from_what_was_saved(tmp_path):
    path = np.cumsum(np.random.default_rng(0).normal(size=(90, 15)), axis=0).astype(np.float32)
    restart = np.zeros(90, np.uint8)
    restart[[29, 59]] = 1
    tensors = {"lifetime/qpos": path, "lifetime/restart": restart, "goal": np.array([3, 4, 0], np.float32)}
    write_atomic(tmp_path / "film.safetensors", encode_tensors(tensors, {}))
    write_json(tmp_path / "film.json", {"title": "goal-ant, held-out task 1"})
    png, svg = figures.paths_in_the_plane(tmp_path)
    text = svg.read_text()
    assert "90 steps of training" in text
    assert "goal-ant, held-out task 1" in text
    shades = [figures.PATHS(0.15 + 0.85 * begun / 90)[0] for begun in (0, 30, 60)]
    assert shades == sorted(shades, reverse=True)
    assert all("#" + f"{round(255 * shade):02x}" in text for shade in shades)  # three lines, one per episode
    assert png.read_bytes() == figures.paths_in_the_plane(tmp_path)[0].read_bytes()
    del tensors["goal"]
    write_atomic(tmp_path / "film.safetensors", encode_tensors(tensors, {}))
    with pytest.raises(BadInput, match=r"film\.safetensors has no path and goal"):
        figures.paths_in_the_plane(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["render"], "name either a loss or --baseline"),
        (["render", "point-reach", "--baseline", "ppo"], "name either a loss or --baseline"),
        (["render", "--baseline", "ppo"], "--baseline needs --family"),
        (["render", "point-reach"], "point-reach has no body that could be drawn: choose a MuJoCo family"),
        (["render", "nowhere"], "no loss at nowhere"),
        (["tasks", "--picture", "a.png"], "--picture needs a family"),
        (["tasks", "goal-ant", "--picture", "a.jpg"], "a picture is a PNG: name it a.png"),
        (["tasks", "goal-ant", "--picture", "nowhere/a.png"], "there is no directory nowhere"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("stages", 1), ("number", -1), ("seed", -1)])
def test_numbers_out_of_range_are_refused(name, value):
    asked = {"seed": 0, "number": 0, "stages": 3} | {name: value}
    with pytest.raises(BadInput, match=f"{'task' if name == 'number' else name} must lie"):
        filming.film(teacher(), FAMILY, **asked)


def drawn_families() -> list[str]:
    script = (ROOT / "tools/draw_families.sh").read_text()
    return script.split('FAMILIES="')[1].split('"')[0].split()


def test_the_page_of_families_has_a_picture_of_each():
    page = (ROOT / "docs/families.md").read_text()
    bodies = [name for name in REGISTRY if isinstance(load_family(name), MujocoFamily)]
    assert sorted([*drawn_families(), "goal-ant-no-reset"]) == sorted(bodies)
    assert all(f"`{name}`" in page for name in REGISTRY)
    for name in drawn_families():
        assert f"images/family-{name}.png" in page
        assert (ROOT / f"docs/images/family-{name}.png").stat().st_size < 150_000


def test_the_command_that_draws_the_families(tmp_path, can_draw):
    command = [str(ROOT / "tools/draw_families.sh"), FAMILY]
    environment = {**os.environ, "PICTURES": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    if not can_draw:
        assert (done.returncode, camera.NO_CAMERA in done.stderr) == (2, True)
        assert list(tmp_path.iterdir()) == []
        return
    assert done.returncode == 0, done.stderr
    ours, kept = (
        np.asarray(Image.open(folder / f"family-{FAMILY}.png").convert("RGB"), int)
        for folder in (tmp_path, ROOT / "docs/images")
    )
    assert ours.shape == kept.shape
    assert np.abs(ours - kept).mean() < 2  # other drivers shade a little differently


def test_both_directions_and_all_sides_are_in_a_picture():
    assert set(pictures.pose_tasks("directional-hopper", 4).labels) == {"forwards", "backwards"}
    angles = [float(np.mod(360 * task.bearing, 360)) for task in pictures.pose_tasks("goal-ant", 4).tasks]
    np.testing.assert_allclose(np.diff(sorted(angles)), 90.0, atol=0.1)
