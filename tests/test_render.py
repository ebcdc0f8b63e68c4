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
from epg.cli import main
from epg.core.errors import BadInput
from epg.core.rng import Split, Stream, lifetime_key, stream_key
from epg.evaluation.protocol import Method, policy_gradient_method, record
from epg.evaluation.transfer import with_updates
from epg.families.appearance import Appearance, CameraPose, Marks, label_numbers
from epg.families.mujoco.base import Clock, MujocoFamily
from epg.families.registry import REGISTRY, find_family
from epg.lifetime.env_step import Actor
from epg.lifetime.host_stepper import HostStepper
from epg.policies.mlp import MlpPolicy
from epg.recipes import ppo_settings, preset, recipe_of
from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.viz import camera, curves, film, recording, task_pictures

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
    posed = task_pictures.pose_tasks(name, 2)
    with camera.open_camera(posed.family, posed.tasks[index], (160, 120)) as eye:
        return eye.shoot(posed.qpos[0])


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


def filmed_ppo() -> Method:
    settings = with_updates(preset(FAMILY, "laptop"), 2)
    tuning = recipe_of(FAMILY).tuned_ppo(settings.lifetime.steps)
    return policy_gradient_method(ppo_settings(settings, tuning, None, has_stats=False), "ppo")


@pytest.fixture(scope="module")
def made() -> recording.Film:
    return recording.record_film(filmed_ppo(), seed=3, number=1, stages=3)


@pytest.mark.slow
def test_the_film_is_of_the_lifetime_that_learn_runs(made):
    it, family = filmed_ppo(), find_family(FAMILY)
    policy = MlpPolicy(it.settings.policy, family.spaces)
    result = record(it, 2, 3)
    assert made.final_return == float(result.final[1])
    trained = result.policies[1]
    actor = Actor(trained.params, trained.mean, trained.std)
    score = stream_key(lifetime_key(3, Split.HELD_OUT, 0, 1), Stream.SCORE)
    stepper = HostStepper(policy, family)
    returns = [
        recording.play(stepper, [actor], made.task, key, [0])[0].episode_return
        for key in jax.random.split(score, it.settings.lifetime.scoring_episodes)
    ]
    assert np.mean(returns) == pytest.approx(made.final_return, rel=1e-5)
    assert made.episodes[-1].episode_return == pytest.approx(returns[0], rel=1e-5)
    updates = [episode.update for episode in made.episodes]
    assert updates == sorted(set(updates))
    assert updates[0] == 0
    assert updates[-1] == it.settings.lifetime.updates


@pytest.mark.slow
def test_stages_begin_alike_and_only_the_policy_differs(made):
    first, *others = (episode.qpos for episode in made.episodes)
    assert first.shape == (51, 4)
    for other in others:
        np.testing.assert_array_equal(first[0], other[0])
        assert np.abs(first[-1] - other[-1]).max() > 1e-3
    np.testing.assert_array_equal(first[:, 2:], np.broadcast_to(first[0, 2:], (51, 2)))  # the target stays


def test_the_return_of_an_episode_is_that_of_its_positions(made):
    for episode in made.episodes:
        lengths = np.array([0.1, 0.11]) * made.task.length
        angles = np.cumsum(episode.qpos[1:, :2], axis=1)
        tip = np.stack([np.cos(angles) @ lengths, np.sin(angles) @ lengths], axis=1)
        expected = -np.linalg.norm(tip - episode.qpos[1:, 2:], axis=1).sum()
        assert episode.episode_return == pytest.approx(expected, rel=1e-4)


def test_the_whole_lifetime_is_recorded(made):
    steps = filmed_ppo().settings.lifetime.steps
    assert made.path.shape == (steps, 4)
    assert np.flatnonzero(made.resets).tolist() == list(range(49, steps, 50))
    assert np.isfinite(made.path).all()


def test_divergence_has_no_position():
    inner = SimpleNamespace(advance=lambda ctrl, states, rows: np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0]]))
    recorder = recording.Recorder(inner, nq=2)
    recorder.advance(np.zeros((2, 1)), np.zeros((2, 1)))
    np.testing.assert_array_equal(recorder.qpos[0], [[1.0, 2.0], [np.nan, np.nan]])


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
    assert stages == result.to_dict()["stages"]
    with Image.open(place / "strip.png") as strip:
        assert strip.width > film.COLUMNS * film.SIZE[0]
        assert strip.height > len(stages) * film.SIZE[1]
        assert colours(np.asarray(strip.convert("RGB"))) > 50
    with Image.open(place / "video.gif") as video:
        assert video.n_frames > 10
    assert ("video.mp4" in written) == (result.hint is None)
    with pytest.raises(BadInput, match="already holds files: choose another --out"):
        epg.render(**HAND, out=place)


def test_a_video_shows_every_episode_to_its_end():
    def episode(steps):
        return recording.Episode(0, 0.0, True, np.zeros((steps + 1, 1)))

    family = SimpleNamespace(fast=Clock(0.01, 1))
    both = recording.Film(family, None, 0.0, (episode(12), episode(7)), np.zeros((0, 1)), np.zeros(0, bool))
    pace, steps = film.timeline(both)
    assert (pace, steps) == (0.05, [0, 5, 10, 12])
    eye = SimpleNamespace(shoot=lambda pose: np.full((1, 1, 3), 100, np.uint8))
    assert [shot[0, 0, 0] for shot in film._play(eye, both.episodes[1], steps)] == [100, 100, 185, 185]
    assert len(film.timeline(replace(both, episodes=(episode(9000),)))[1]) <= film.MOST + 1


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
    reset = np.zeros(90, np.uint8)
    reset[[29, 59]] = 1
    tensors = {"lifetime/qpos": path, "lifetime/reset": reset, "goal": np.array([3, 4, 0], np.float32)}
    write_atomic(tmp_path / "film.safetensors", encode_tensors(tensors, {}))
    write_json(tmp_path / "film.json", {"title": "goal-ant, held-out task 1"})
    png, svg, _ = curves.paths_in_the_plane(tmp_path)
    text = svg.read_text()
    assert "90 steps of training" in text
    assert "goal-ant, held-out task 1" in text
    shades = [curves.PATHS(0.15 + 0.85 * begun / 90)[0] for begun in (0, 30, 60)]
    assert shades == sorted(shades, reverse=True)
    assert all("#" + f"{round(255 * shade):02x}" in text for shade in shades)  # three lines, one per episode
    assert png.read_bytes() == curves.paths_in_the_plane(tmp_path)[0].read_bytes()
    del tensors["goal"]
    write_atomic(tmp_path / "film.safetensors", encode_tensors(tensors, {}))
    with pytest.raises(BadInput, match=r"film\.safetensors has no path and goal"):
        curves.paths_in_the_plane(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["render"], "name either a loss or --baseline"),
        (["render", "point-reach", "--baseline", "ppo"], "name either a loss or --baseline"),
        (["render", "--baseline", "ppo"], "--baseline needs --family"),
        (["render", "point-reach"], "point-reach cannot be drawn: choose a MuJoCo family"),
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
        recording.record_film(filmed_ppo(), **asked)


def drawn_families() -> list[str]:
    script = (ROOT / "tools/draw_families.sh").read_text()
    return script.split('FAMILIES="')[1].split('"')[0].split()


def test_the_page_of_families_has_a_picture_of_each():
    page = (ROOT / "docs/families.md").read_text()
    bodies = [name for name in REGISTRY if isinstance(find_family(name), MujocoFamily)]
    assert sorted([*drawn_families(), "goal-ant-no-reset"]) == sorted(bodies)
    assert all(f"`{name}`" in page for name in REGISTRY)
    for name in drawn_families():
        assert f"images/family-{name}.png" in page
        assert (ROOT / f"docs/images/family-{name}.png").stat().st_size < 150_000


@pytest.mark.slow
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
    assert set(task_pictures.pose_tasks("directional-hopper", 4).labels) == {"forwards", "backwards"}
    angles = [float(np.mod(360 * task.bearing, 360)) for task in task_pictures.pose_tasks("goal-ant", 4).tasks]
    np.testing.assert_allclose(np.diff(sorted(angles)), 90.0, atol=0.1)


# --- appearance: what a family says of its own pictures ---------------------------------------------------------------

BODIES = [name for name in REGISTRY if isinstance(find_family(name), MujocoFamily)]


@pytest.mark.parametrize("name", BODIES)
def test_every_body_says_how_it_is_shown(name):
    appearance = find_family(name).appearance
    assert isinstance(appearance.camera, CameraPose)
    posed = task_pictures.pose_tasks(name, 2)
    for task, qpos, label in zip(posed.tasks, posed.qpos, posed.labels, strict=True):
        marks = appearance.marks(task)
        assert (marks.goal is None) == (marks.radius == 0.0)
        assert marks.goal is None or np.isfinite(marks.goal).all()
        assert qpos.shape == (posed.family.sizes.qpos,)
        assert label == appearance.label(task)
        assert label
    camera_of_reference = find_family(f"{name}@reference").appearance.camera
    assert camera_of_reference == appearance.camera


def test_marks_and_labels_are_those_of_the_task():
    ant, cheetah, fetch = (find_family(name) for name in ("goal-ant", "directional-half-cheetah", "fetch-reach"))
    north = ant.stock_task._replace(bearing=np.float32(0.25))
    marks = ant.appearance.marks(north)
    np.testing.assert_allclose(marks.goal, [0.0, 10.0, 0.4], atol=1e-5)
    np.testing.assert_allclose(marks.direction, [0.0, 10.0], atol=1e-5)
    assert marks.path
    assert ant.appearance.label(north) == "goal at 90°"
    backwards = cheetah.stock_task._replace(sign=np.float32(-1.0))
    np.testing.assert_array_equal(cheetah.appearance.marks(backwards).direction, [-1.0, 0.0])
    assert (cheetah.appearance.label(backwards), cheetah.appearance.marks(backwards).path) == ("backwards", False)
    np.testing.assert_allclose(fetch.appearance.marks(fetch.stock_task).goal, [1.3418, 0.7491, 0.5347], atol=1e-4)
    body = find_family("random-hopper")
    assert body.appearance.label(body.stock_task) == "gravity 9.81 m/s²"
    assert body.appearance.marks(body.stock_task) == Marks()


def test_a_family_without_an_appearance_is_shown_whole():
    family = replace(find_family("random-hopper"), appearance=Appearance())
    model = SimpleNamespace(
        njnt=1,
        jnt_type=[2],
        stat=SimpleNamespace(center=np.array([1.0, 2.0, 0.5]), extent=2.0),  # a slide joint
    )
    assert camera.camera_pose(family, model) == CameraPose(120, -25, 3.6, (0.0, 0.0, 0.5), "xy")
    model.jnt_type = [3]  # a hinge: it stays where it is
    assert camera.camera_pose(family, model) == CameraPose(120, -25, 3.6, (1.0, 2.0, 0.5), "")
    label = label_numbers(find_family("goal-ant").stock_task._replace(yaw=np.float32(-0.5)))
    assert label == "bearing 0.00, yaw −0.50"
