"""Pictures: files that need no network, of all shapes, and clear words where something is missing."""

import dataclasses
import html.parser
import importlib
import re
import types

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import PIL.Image
import pytest

import pbad_jax as pbad
from pbad_jax import viz
from pbad_jax.model.model import Mesh
from pbad_jax.viz import frames, needs, raster, shapes, stage

pytestmark = pytest.mark.float64

PYRAMID = Mesh(
    np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]), np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
)


@pytest.fixture(scope="module")
def rolled():
    model = pbad.chain(2)
    state = pbad.make_state(model, q=[1.0, 0.2, 0.1, 0.0])
    traj, info = pbad.rollout(model, state, n_steps=6, options=pbad.Options(dt=0.05))
    return model, traj, info


@pytest.fixture(scope="module")
def zoo():
    """One free body of every shape, over a plane."""
    sizes = {"sphere": (0.2,), "capsule": (0.1, 0.3), "ellipsoid": (0.1, 0.2, 0.3), "cylinder": (0.1, 0.3),
             "box": (0.1, 0.2, 0.3), "mesh": ()}  # fmt: skip
    bodies = [
        pbad.Body(
            kind, 1.0, inertia=0.1 * np.eye(3), position=(k, 0, 1), joints=[pbad.Joint("free")],
            geoms=[pbad.Geom(kind, size or (0, 0, 0), (0.1, 0, 0), (0.8, 0.6, 0, 0), (1, 0, 0, 0.5),
                             mesh=PYRAMID if kind == "mesh" else None)],
        )
        for k, (kind, size) in enumerate(sizes.items())
    ]  # fmt: skip
    return pbad.build_model(bodies, name="zoo", world_geoms=[pbad.Geom("plane"), pbad.Geom("box", (0.1, 0.1, 0.1))])


class Loads(html.parser.HTMLParser):
    """Everything that an HTML file makes a browser fetch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "srcset", "poster", "data") or (name == "href" and tag != "a"):
                self.found.append(value or "")


def needs_no_network(path) -> bool:
    text = path.read_text()
    loads = Loads()
    loads.feed(text)
    styled = re.findall(r"(?:url\(|@import )['\"]?(https?:[^'\")]*)", text)
    return not styled and all(x.startswith(("data:", "#", "blob:")) for x in loads.found)


def test_html_is_self_contained(rolled, tmp_path, capfd):
    model, traj, _ = rolled
    viz.to_html(model, traj, tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text().startswith("<!")
    assert needs_no_network(tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_size < 2e6
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    assert capfd.readouterr().out == ""  # viser's banner stays away


def test_network_check_sees_a_load(tmp_path):
    for tag in ('<script src="https://x.org/a.js">', '<link href="http://x.org/a.css">', "<style>a{b:url(https://x)}"):
        (tmp_path / "b.html").write_text(f"<html>{tag}")
        assert not needs_no_network(tmp_path / "b.html")


def test_server_listens_on_this_machine_only(rolled, tmp_path, monkeypatch):
    import viser

    seen = []
    make = viser.ViserServer
    monkeypatch.setattr(viser, "ViserServer", lambda **kwargs: seen.append(kwargs) or make(**kwargs))
    viz.to_html(rolled[0], rolled[1], tmp_path / "a.html")
    assert seen == [{"host": "127.0.0.1", "port": 0, "verbose": False}]


@pytest.mark.parametrize("layout", ["grid", "overlay"])
def test_batch(rolled, tmp_path, layout):
    model, traj, _ = rolled
    viz.to_html(model, jnp.stack([traj.q] * 5), tmp_path / "a.html", dt=0.05, layout=layout)
    assert needs_no_network(tmp_path / "a.html")


def test_batched_trajectory(rolled, tmp_path):
    model, traj, _ = rolled
    viz.to_html(model, jax.tree.map(lambda x: jnp.stack([x, x]), traj), tmp_path / "a.html")


def test_all_shapes(zoo, tmp_path):
    viz.to_html(zoo, zoo.q0[None], tmp_path / "a.html")
    assert needs_no_network(tmp_path / "a.html")


def test_far_flight_is_followed(zoo, tmp_path):
    q = np.stack([np.asarray(zoo.q0)] * 3)
    q[:, 2::7] -= np.array([[0], [50], [500]])
    viz.to_html(zoo, q, tmp_path / "a.html")


def test_the_title_is_the_models_and_its_step(rolled, tmp_path):
    model, traj, _ = rolled
    viz.to_html(model, traj, tmp_path / "a.html")
    assert "<title>chain:2, steps of 0.05 s</title>" in (tmp_path / "a.html").read_text()
    viz.to_html(model, traj.q, tmp_path / "a.html", title="<5 kg>")
    assert "<title>&lt;5 kg&gt;</title>" in (tmp_path / "a.html").read_text()


def staged(model, motion, layout="grid", follow=None, dt=0.1):
    return stage.stage_of(model, motion, stage.Look(10.0, dt, layout, follow))


def test_the_view_goes_with_what_falls_and_stays_with_what_swings(zoo):
    q = np.tile(np.asarray(zoo.q0), (20, 1))
    assert not staged(zoo, q).follows
    q[:, 2::7] -= np.linspace(0, 100, 20)[:, None]
    falls = staged(zoo, q)
    assert falls.follows and falls.extent < 20  # m: of the zoo, not of its fall
    still = staged(zoo, q, follow=False)
    assert not still.follows and still.extent > 100
    chain = pbad.chain(3)
    swings = np.linspace([1.5, 0, 0, 0, 0, 0], [-1.5, 0, 0, 0, 0, 0], 20)
    assert not staged(chain, swings).follows


@pytest.mark.parametrize("motion", ["fall", "swing", "batch"])
def test_the_camera_holds_all_that_moves(zoo, motion):
    q = np.tile(np.asarray(zoo.q0), (20, 1))
    model = zoo
    if motion == "fall":
        q[:, 2::7] -= (np.linspace(0, 4, 20) ** 2)[:, None]
    else:
        model = pbad.chain(3)
        q = np.linspace([1.5, 0, 0, 0, 0, 0], [-1.5, 0, 1, 0, 0, 0], 20)
    if motion == "batch":
        q = np.stack([q] * 5)
    play = staged(model, q)
    view = raster.view_of(play, 320, 240)
    for group in play.groups:
        if group.shape.body >= 0:
            column, row, depth = view.seen(group.position.reshape(-1, 3)).T
            assert depth.min() > 0
            assert 0 < column.min() and column.max() < view.width and 0 < row.min() and row.max() < view.height


def test_lanes_stand_side_by_side():
    model = pbad.chain(2)
    q = np.linspace([1.5, 0, 0, 0], [-1.5, 0, 0, 0], 5)
    lanes = staged(model, np.stack([q] * 3)).groups[0].position[0].reshape(3, -1, 3)[:, 0]
    gaps = np.diff(np.sort(lanes, axis=0), axis=0)
    assert (np.abs(gaps).max(axis=0) > 0).sum() == 1  # along one axis
    assert gaps.max() > 2.0  # m, the width of the swing
    together = staged(model, np.stack([q] * 3), layout="overlay").groups[0].position[0].reshape(3, -1, 3)[:, 0]
    np.testing.assert_allclose(together, together[:1].repeat(3, 0))


def test_the_ground_is_where_contact_acts(zoo):
    ball = pbad.Body("b", 1.0, inertia=0.1 * np.eye(3), position=(0, 0, 2), joints=[pbad.Joint("free")],
                     geoms=[pbad.Geom("sphere", (0.1, 0, 0))])  # fmt: skip
    model = pbad.build_model([ball])
    touch = pbad.forces.contact(model, pbad.forces.half_space(offset=-0.5))
    (plane,) = staged(pbad.with_forces(model, touch), model.q0[None]).planes
    np.testing.assert_allclose(plane.position[0], [0, 0, -0.5])
    (below,) = staged(model, model.q0[None]).planes  # nothing acts: a grid under the lowest point
    assert 1.8 < below.position[0, 2] < 1.9


def lying_ball():
    """A ball on the ground z = 0, where it presses and where it flies: the model and two rows."""
    ball = pbad.Body("b", 2.0, inertia=0.1 * np.eye(3), joints=[pbad.Joint("free")],
                     geoms=[pbad.Geom("sphere", (0.1, 0, 0))])  # fmt: skip
    model = pbad.build_model([ball])
    model = pbad.with_forces(model, pbad.forces.contact(model))
    q = np.tile(np.asarray(model.q0), (2, 1))
    q[:, :3] = [[0.3, -0.2, 0.099], [0.3, -0.2, 0.5]]
    time = jnp.asarray([0.1, 0.2], model.dtype)
    return model, pbad.Trajectory(time, jnp.asarray(q, model.dtype), jnp.zeros((2, 6), model.dtype))


@pytest.mark.slow
def test_contact_forces_are_arrows_on_the_line_where_they_act():
    model, traj = lying_ball()
    push = float(pbad.contact_forces(model, pbad.make_state(model, traj.q[0]))[0, 5])
    assert push > 1  # N
    for wanted, scale in (
        (True, 0.2 / max(2 * 9.81, push / 1.5)),
        (1e-4, 1e-4),
        (0.01, 0.01),
    ):  # m/N; it is 0.2 m large
        look = stage.Look(10.0, follow=False, contact_forces=wanted)
        play = stage.stage_of(model, traj, look)
        (arrows,) = [g for g in play.groups if g.length is not None]
        np.testing.assert_allclose(arrows.length, [[scale * push], [0.0]], rtol=1e-5)
        x, y, z = arrows.scale_at(0)[0]
        assert x == y and x <= z / stage.SLENDER * 1.001, "no plates"
        np.testing.assert_allclose(arrows.position[0, 0], [0.3, -0.2, -0.001], atol=1e-6)  # its lowest point
        np.testing.assert_allclose(arrows.quaternion[0, 0], [1, 0, 0, 0], atol=1e-6)
    assert all(g.length is None for g in staged(model, traj).groups)
    lanes = jax.tree.map(lambda x: jnp.stack([x, x]), traj)
    (arrows,) = [g for g in stage.stage_of(model, lanes, look).groups if g.length is not None]
    assert arrows.position.shape == (2, 2, 3) and np.ptp(arrows.position[0], axis=0).max() > 0.1  # side by side
    shown = viz.images(model, traj, fps=10, size=(96, 72), title="", contact_forces=0.05).astype(int)
    red = (shown[..., 0] - shown[..., 2] > 60).sum(axis=(1, 2))  # the ball is blue
    assert red[0] > 10 and red[1] == 0


def test_contact_forces_refuse(rolled, tmp_path):
    model, traj, _ = rolled
    with pytest.raises(pbad.StateError, match="give a Trajectory"):
        viz.to_html(model, traj.q, tmp_path / "a.html", contact_forces=True)
    with pytest.raises(pbad.OptionError, match="contact_forces is -1"):
        viz.to_html(model, traj, tmp_path / "a.html", contact_forces=-1)
    viz.to_html(model, traj, tmp_path / "a.html", contact_forces=True)  # nothing touches: no arrows


def test_show_gives_one_inline_frame(rolled, monkeypatch):
    import IPython.core.getipython
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.core.getipython, "get_ipython", lambda: object())
    monkeypatch.setattr(IPython.display, "display", shown.append)
    assert viz.show(rolled[0], rolled[1], height=300) is None
    assert len(shown) == 1
    assert "srcdoc=" in shown[0].data and 'height="300"' in shown[0].data


def test_display_frames_are_resampled(rolled):
    model, traj, _ = rolled
    shown = frames.frames_of(model, traj, 100, None)  # 0.25 s between the first row and the last
    assert shown.position.shape == (26, 1, 2, 3)
    k = 10  # 0.1 s after the first row: the third
    exact = pbad.forward_kinematics(model, traj.q[2])
    np.testing.assert_allclose(shown.position[k, 0], exact.position, atol=1e-5)
    between = pbad.forward_kinematics(model, traj.q[0] + 0.4 * (traj.q[1] - traj.q[0]))
    np.testing.assert_allclose(shown.position[2, 0], between.position, atol=1e-5)


def test_shapes_move_with_their_bodies(zoo):
    q = np.array(zoo.q0)
    turn = np.array([0.5, 0.5, 0.5, 0.5])  # x to y, y to z, z to x
    q[3:7] = turn
    shown = frames.frames_of(zoo, q[None], 30, None)
    shape = shapes.shapes_of(zoo)[0]
    position, quaternion = shown.poses([shape])
    np.testing.assert_allclose(position[0, 0, 0], [0, 0.1, 1], atol=1e-6)
    np.testing.assert_allclose(np.abs(quaternion[0, 0, 0] @ [0.1, 0.7, 0.7, 0.1]), 1, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_quaternion_of_a_rotation(seed):
    p = np.random.default_rng(seed).normal(size=4)
    p[seed % 4] *= 10
    p /= np.linalg.norm(p)
    w, x, y, z = p
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    found = frames._quaternion(jnp.asarray(np.eye(3) + 2 * w * K + 2 * K @ K))
    np.testing.assert_allclose(np.abs(found @ p), 1, atol=1e-6)


@pytest.mark.parametrize("mesh", [shapes.capsule(0.0), shapes.capsule(1.5), shapes.cylinder(), shapes.box()])
def test_meshes_are_closed_and_face_outwards(mesh):
    """The volume from the faces is that of the solid, so none is missing and none looks inwards."""
    x, y, z = mesh.vertices[mesh.faces].transpose(1, 0, 2)
    volume = np.einsum("ij,ij->", x, np.cross(y, z)) / 6
    height = np.ptp(mesh.vertices[:, 2])
    exact = 8.0 if len(mesh.vertices) == 24 else np.pi * 2 if height == 2 and mesh.vertices[0, 0] == 0 else None
    exact = exact if exact is not None else np.pi * (4 / 3 + height - 2)
    assert volume == pytest.approx(exact, rel=0.03)


def test_bones_where_a_model_has_no_shapes(tmp_path):
    bodies = [
        pbad.Body(f"b{i}", 1.0, (0.2, 0, 0), 0.1 * np.eye(3), i - 1 if i else None, (0.5 * (i > 0), 0, 0),
                  joints=[pbad.Joint("ball")])
        for i in range(3)
    ]  # fmt: skip
    model = pbad.build_model(bodies)
    bones = shapes.shapes_of(model)
    assert [b.body for b in bones] == [0, 1, 2]
    np.testing.assert_allclose([b.position for b in bones], [[0.25, 0, 0], [0.25, 0, 0], [0.1, 0, 0]], atol=1e-6)
    viz.to_html(model, model.q0[None], tmp_path / "a.html")


def test_bad_motions(rolled, tmp_path):
    model, traj, _ = rolled
    out = tmp_path / "a.html"
    with pytest.raises(pbad.StateError, match=r"shape \(6, 3\).*\(T, 4\)"):
        viz.to_html(model, traj.q[:, :3], out)
    with pytest.raises(pbad.StateError, match="nothing to draw"):
        viz.to_html(model, traj.q[:0], out)
    with pytest.raises(pbad.StateError, match=r"q\[2\] of lane 0, row 3 is nan"):
        viz.to_html(model, traj.q.at[3, 2].set(jnp.nan), out)
    with pytest.raises(pbad.OptionError, match="fps is 0"):
        viz.to_html(model, traj, out, fps=0)
    with pytest.raises(pbad.OptionError, match="dt is -1"):
        viz.to_html(model, traj.q, out, dt=-1)
    with pytest.raises(pbad.OptionError, match="layout is 'heap'"):
        viz.to_html(model, traj, out, layout="heap")
    assert not out.exists()


@pytest.mark.parametrize("missing", ["viser", "matplotlib.figure"])
def test_missing_packages_say_what_to_install(rolled, tmp_path, monkeypatch, missing):
    real = importlib.import_module

    def absent(name, *args):
        if name == missing:
            raise ImportError(f"No module named {name!r}")
        return real(name, *args)

    monkeypatch.setattr(needs.importlib, "import_module", absent)
    draw = viz.to_html if missing == "viser" else viz.plot_energy
    with pytest.raises(ImportError, match=r'pip install "pbad_jax\[viz\]"'):
        draw(rolled[0], rolled[1], tmp_path / "a.png")


def test_images_show_solids_and_their_motion(zoo):
    q = np.tile(np.asarray(zoo.q0), (3, 1))
    q[1:, 2] += 0.3
    shown = viz.images(zoo, q, fps=10, dt=0.1, size=(160, 120), title="")
    assert shown.shape == (3, 120, 160, 3) and shown.dtype == np.uint8
    red = (shown[..., 0].astype(int) - shown[..., 1] > 60) & (shown[..., 2] < 120)  # the zoo's bodies alone are red
    assert 100 < red[0].sum() < 160 * 120 / 3
    assert (shown[0] != shown[1]).any() and (shown[1] == shown[2]).all()


def test_nearer_triangles_hide_farther_ones():
    """Two overlapping squares, the far one drawn last."""
    square = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0.0]])
    mesh = Mesh(square, np.array([[0, 1, 2], [0, 2, 3]]))
    bodies = [
        pbad.Body(f"b{k}", 1.0, inertia=np.eye(3), position=(0, 0, z), joints=[pbad.Joint("free")],
                  geoms=[pbad.Geom("mesh", mesh=mesh, rgba=(*rgb, 1))])
        for k, (z, rgb) in enumerate([(0.1, (1, 0, 0)), (0.0, (0, 0, 1))])
    ]  # fmt: skip
    model = pbad.build_model(bodies)
    play = staged(model, model.q0[None])
    view = raster.view_of(play, 64, 48)
    middle = view.seen(np.array([0, 0, 0.1]))[:2].astype(int) // raster.FINE
    image = next(raster.pictures(play, 64, 48))[middle[1], middle[0]].astype(int)
    assert image[0] > image[2] + 60


def test_a_triangle_seen_edge_on_covers_nothing():
    view = types.SimpleNamespace(width=64, height=48)
    x, z = np.array([[1.0, 5.0, 3.0], [1.0, 5.0, 3.0]]), np.ones((2, 3))
    y = np.array([[2.0, 6.0, 4.0], [2.0, 6.0, 7.0]])  # on one line, and not
    drawn = raster._inside(view, x, y, z, np.zeros((2, 2), int), 8, np.arange(2))[2]
    assert set(drawn) == {1}


@pytest.mark.parametrize("suffix", [".gif", ".png", ".mp4"])
def test_video(rolled, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    viz.to_video(rolled[0], rolled[1], path, fps=10, size=(64, 48))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if suffix != ".mp4":
        with PIL.Image.open(path) as picture:
            assert picture.n_frames == 3 and picture.size == (64, 48) and picture.info["loop"] == 0


def test_video_refuses(rolled, tmp_path):
    with pytest.raises(pbad.OptionError, match=r"'\.avi' is no format"):
        viz.to_video(rolled[0], rolled[1], tmp_path / "a.avi")
    with pytest.raises(pbad.OptionError, match=r"size is \(0, 10\)"):
        viz.images(rolled[0], rolled[1], size=(0, 10))


def test_energy_plot(rolled, tmp_path):
    model, traj, info = rolled
    failed = dataclasses.replace(info, status=info.status.at[-2:].set(1))
    axes = viz.plot_energy(model, traj, tmp_path / "e.png", info=failed)
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (s)", "energy (J)")
    kinetic, potential, total, crosses = axes.get_lines()
    np.testing.assert_allclose(kinetic.get_ydata() + potential.get_ydata(), total.get_ydata())
    assert len({line.get_linestyle() for line in (kinetic, potential, total)}) == 3  # told apart without colour
    assert len(crosses.get_xdata()) == 2


def test_energy_plot_into_given_axes(rolled):
    axes = matplotlib.figure.Figure().subplots()
    assert viz.plot_energy(rolled[0], rolled[1], ax=axes) is axes


def test_energy_plot_refuses(rolled, tmp_path):
    model, traj, info = rolled
    with pytest.raises(pbad.StateError, match="one lane"):
        viz.plot_energy(model, jax.tree.map(lambda x: x[None], traj))
    with pytest.raises(pbad.OptionError, match="suffix 'foo'"):
        viz.plot_energy(model, traj, tmp_path / "e.foo")
    with pytest.raises(pbad.StateError, match=r"info\.status"):
        viz.plot_energy(model, traj, info=dataclasses.replace(info, status=info.status[1:]))


def test_the_energy_plot_shows_what_the_scheme_took_where_forces_took_the_rest():
    body = pbad.Body(
        "b", 1.0, com=(0, 0, -0.5), inertia=0.1 * np.eye(3), joints=[pbad.Joint("hinge", (1, 0, 0), damping=0.3)]
    )
    labels = []
    for damped in (True, False):
        model = pbad.build_model(
            [body if damped else dataclasses.replace(body, joints=[pbad.Joint("hinge", (1, 0, 0))])]
        )
        options = pbad.Options(0.05, "radau1", account=True)
        traj, info = pbad.rollout(model, pbad.make_state(model, [2.0], [0.5]), n_steps=40, options=options)
        axes = viz.plot_energy(model, traj, info=info)
        labels.append([line.get_label() for line in axes.lines])
    assert "scheme alone" in labels[0] and "scheme alone" not in labels[1]
