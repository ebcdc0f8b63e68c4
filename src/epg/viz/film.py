"""Film strips and videos of a policy at stages of its lifetime (Figs. 3, 4, 14), and pictures of a family's tasks.

The only module that imports Pillow, and imageio where it is installed.
"""

from __future__ import annotations

import importlib.util
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from epg.core.errors import require
from epg.storage.files import encode_tensors, write_atomic, write_json
from epg.storage.run import Run, check_vacant
from epg.viz.camera import find_backend, open_camera
from epg.viz.curves import paths_in_the_plane
from epg.viz.recording import Episode, Film
from epg.viz.task_pictures import pose_tasks

SIZE = (224, 168)  # of a frame, even numbers (MP4 wants them)
PHOTO = (256, 192)  # of a task's picture
COLUMNS = 6  # frames of a strip's row
LABEL, HEADER, FOOTER, GAP = 132, 30, 22, 4  # pixels
PACE, MOST = 0.05, 220  # seconds between a video's frames, and how many there are at most
INK, PALE, PAPER = (25, 25, 25), (110, 110, 110), (255, 255, 255)
MP4 = ("imageio", "imageio_ffmpeg")
MP4_HINT = "no MP4 was written: for one, install epg[video] (imageio and ffmpeg)."


def check_out(out: Path) -> None:
    """Refuse before minutes are spent: a directory that holds something, or a machine that cannot draw."""
    held = os.path.isdir(out) and any(out.iterdir())
    require(not held, f"{out} already holds files: choose another --out.")
    check_vacant(out)
    find_backend()


@dataclass(frozen=True)
class FilmResult:
    """The result of `epg.render`: a film, and where it is."""

    run: Path
    """The directory."""
    title: str
    """What it shows."""
    film: Film
    """The lifetime, with an episode per stage."""
    files: tuple[Path, ...]
    """Strip, videos and figures."""
    hint: str | None
    """What is missing for an MP4, if anything is."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: the content of film.json, and the files."""
        files = [str(path) for path in self.files]
        return {"run": str(self.run), **film_facts(self.film, self.title), "files": files, "hint": self.hint}


def film_facts(film: Film, title: str) -> dict[str, Any]:
    """Return the content of film.json: what each stage's episode came to."""
    stages = [
        {"update": it.update, "return": it.episode_return, "steps": len(it.qpos) - 1, "terminated": it.terminated}
        for it in film.episodes
    ]
    interval = film.family.fast.interval
    return {"title": title, "interval": interval, "final_return": film.final_return, "stages": stages}


def write_film(film: Film, title: str, place: Path, video: bool, config: Mapping[str, Any]) -> FilmResult:
    """Draw a film, write it and what it was drawn from into a new directory, and say what is there."""
    drawn = draw_film(film, title, video)
    run = Run.create(place, config)
    for name, data in drawn.items():
        write_atomic(run.path / name, data)
    marks = film.family.appearance.marks(film.task)
    tensors = {f"stage-{it.update:06d}/qpos": it.qpos for it in film.episodes}
    tensors |= {"lifetime/qpos": film.path, "lifetime/reset": film.resets.astype(np.uint8)}
    tensors |= {} if marks.goal is None else {"goal": marks.goal.astype(np.float32)}
    write_atomic(run.path / "film.safetensors", encode_tensors(tensors, {}))
    write_json(run.path / "film.json", film_facts(film, title))
    files = [run.path / name for name in drawn]
    if marks.path:
        files += paths_in_the_plane(run.path)
    hint = MP4_HINT if video and "video.mp4" not in drawn else None
    return FilmResult(run.path, title, film, tuple(files), hint)


def draw_film(film: Film, title: str, video: bool) -> dict[str, bytes]:
    """Return the strip and the videos, by file name."""
    pace, steps = timeline(film)
    with open_camera(film.family, film.task, SIZE) as camera:
        rows = [[camera.shoot(episode.qpos[step]) for step in _spread(episode)] for episode in film.episodes]
        scenes = [_play(camera, episode, steps) for episode in film.episodes] if video else []
        follow = camera.pose.track
    drawn = {"strip.png": png(strip(film, rows, title, follow))}
    if video:
        words = [f"update {it.update}, return {it.episode_return:.4g}".replace("-", "−") for it in film.episodes]
        frames = [side_by_side(moment, words) for moment in zip(*scenes, strict=True)]
        drawn["video.gif"] = gif(frames, pace)
        if all(importlib.util.find_spec(name) for name in MP4):
            drawn["video.mp4"] = mp4(frames, pace)
    return drawn


def _spread(episode: Episode) -> list[int]:
    """Choose the steps that a strip shows: evenly over the episode, first and last included."""
    return np.linspace(0, len(episode.qpos) - 1, COLUMNS).round().astype(int).tolist()


def timeline(film: Film) -> tuple[float, list[int]]:
    """Return the seconds between a video's frames and the step that each shows, to the end of the longest episode."""
    longest = max(len(episode.qpos) for episode in film.episodes)
    stride = max(round(PACE / film.family.fast.interval), -(-longest // MOST), 1)
    steps = list(range(0, longest, stride))
    return stride * film.family.fast.interval, [*steps, longest - 1] if steps[-1] != longest - 1 else steps


def _play(camera: Any, episode: Episode, steps: Sequence[int]) -> list[np.ndarray]:
    """Shoot an episode; after its end its last picture stays, faded."""
    last = len(episode.qpos) - 1
    shots = [camera.shoot(episode.qpos[step]) for step in steps if step < last]
    end = camera.shoot(episode.qpos[last])
    faded = (0.45 * end + 0.55 * 255).astype(np.uint8)
    late = [faded if step > last else end for step in steps if step >= last]
    return shots + late


def strip(film: Film, rows: Sequence[Sequence[np.ndarray]], title: str, follow: str = "") -> Image.Image:
    """Lay out a row of frames per stage, in the order of time, with its update and return before it.

    A camera that moves with the body hides how far it came: `follow` names the axes to write down.
    """
    width, height = SIZE
    sheet = Image.new("RGB", (LABEL + COLUMNS * (width + GAP), HEADER + 18 + len(rows) * (height + GAP)), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((8, 8), title, INK, font(15))
    pen.text((8, 30), "rows: the policy at stages of its lifetime; from left to right: one episode", PALE, font(12))
    for index, (episode, shots) in enumerate(zip(film.episodes, rows, strict=True)):
        top = HEADER + 18 + index * (height + GAP)
        seconds = (len(episode.qpos) - 1) * film.family.fast.interval
        pen.text((8, top + 52), f"update {episode.update}", INK, font(15))
        pen.text((8, top + 76), f"return {episode.episode_return:.4g}".replace("-", "−"), INK, font(15))
        pen.text((8, top + 100), f"{'ended at' if episode.terminated else 'lasted'} {seconds:.2f} s", PALE, font(13))
        for column, (step, shot) in enumerate(zip(_spread(episode), shots, strict=True)):
            left = LABEL + column * (width + GAP)
            sheet.paste(Image.fromarray(shot), (left, top))
            where = "".join(f", {axis} {episode.qpos[step, at]:.1f} m" for at, axis in enumerate(follow))
            words = f"{step * film.family.fast.interval:.2f} s{where}".replace("-", "−")
            pen.text((left + 6, top + 4), words, INK, font(12))
    return sheet


def side_by_side(pictures: Sequence[np.ndarray], labels: Sequence[str]) -> Image.Image:
    """Set pictures of one size side by side, each with its label below."""
    height, width, _ = pictures[0].shape
    sheet = Image.new("RGB", (len(pictures) * (width + GAP) - GAP, height + FOOTER), PAPER)
    pen = ImageDraw.Draw(sheet)
    for index, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        sheet.paste(Image.fromarray(picture), (index * (width + GAP), 0))
        pen.text((index * (width + GAP) + width // 2, height + 3), label, INK, font(13), anchor="ma")
    return sheet


def write_picture(family: str, place: Path, number: int = 4) -> Path:
    """Draw some tasks of a family, a moment after the start, and write a PNG."""
    require(place.suffix.lower() == ".png", f"a picture is a PNG: name it {place.with_suffix('.png')}.")
    require(os.path.isdir(place.parent), f"{place} cannot be written: there is no directory {place.parent}.")
    find_backend()
    posed, photos = pose_tasks(family, number), []
    for task, pose in zip(posed.tasks, posed.qpos, strict=True):
        with open_camera(posed.family, task, PHOTO) as camera:
            photos.append(camera.shoot(pose))
    write_atomic(place, png(side_by_side(photos, posed.labels)))
    return place


def font(size: int) -> Any:
    """Return the typeface that comes with matplotlib; Pillow's own has neither ² nor −."""
    found = importlib.util.find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    return ImageFont.truetype(str(Path(found.origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"), size)


def png(image: Image.Image) -> bytes:
    """Encode with 256 colours: a third of the size, and nobody sees it."""
    data = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(data, "PNG", optimize=True)
    return data.getvalue()


def gif(frames: Sequence[Image.Image], pace: float) -> bytes:
    """Encode an endless GIF; its last frame stays for a second and a half."""
    data = io.BytesIO()
    first, *rest = (frame.quantize(96, dither=Image.Dither.NONE) for frame in frames)
    times = [*[max(20, round(1000 * pace))] * len(rest), 1500]
    first.save(data, "GIF", save_all=True, append_images=rest, duration=times, loop=0)
    return data.getvalue()


def check_video(path: Path) -> Path:
    """Refuse a video that could not be written."""
    require(path.suffix.lower() in (".gif", ".mp4"), f"a video is a GIF or an MP4: name it {path.with_suffix('.gif')}.")
    able = path.suffix.lower() == ".gif" or all(importlib.util.find_spec(name) for name in MP4)
    require(able, f"{path} cannot be written: install epg[video] (imageio and ffmpeg), or name a GIF.")
    require(os.path.isdir(path.parent), f"{path} cannot be written: there is no directory {path.parent}.")
    return path


class Filming:
    """Frames of an episode of unknown length, `pace` seconds apart: every n-th, at most as many as a film has."""

    def __init__(self, pace: float) -> None:
        self._pace, self._stride, self._count = pace, max(round(PACE / pace), 1), 0
        self._frames: list[Image.Image] = []

    def see(self, draw: Callable[[], np.ndarray]) -> None:
        """Draw and keep the next frame [height, width, 3], if it is one of the n-th."""
        if self._count % self._stride == 0:
            self._frames.append(Image.fromarray(np.ascontiguousarray(draw())))
        self._count += 1
        if len(self._frames) > MOST:
            self._frames, self._stride = self._frames[::2], 2 * self._stride

    def encode(self, suffix: str) -> bytes:
        """Return the film as a GIF or MP4, as fast as it happened."""
        return (gif if suffix.lower() == ".gif" else mp4)(self._frames, self._stride * self._pace)


def mp4(frames: Sequence[Image.Image], pace: float) -> bytes:
    """Encode with ffmpeg, which wants a file."""
    import imageio

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # imageio forks to start ffmpeg at once; JAX warns of forks that go on.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        path = Path(folder) / "video.mp4"
        imageio.mimwrite(path, [np.asarray(frame) for frame in frames], fps=1 / pace, macro_block_size=2)
        return path.read_bytes()
