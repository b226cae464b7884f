"""The command line: exit codes, the summary, the files, and one line for everything that is wrong."""

import os
import re
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

import pbad_jax as pbad
from pbad_jax import Body, Joint, compilation_cache, forces
from pbad_jax.builders.hold import position_servos, resting_controls
from pbad_jax.cli import main
from pbad_jax.cli.arguments import parse
from pbad_jax.cli.models import load_model
from pbad_jax.cli.standing import begin

pytestmark = pytest.mark.float64  # the command line sets the precision itself; changing it back and forth upsets JAX

SHORT = ["--dt", "0.02", "--time", "0.1"]
PENDULUM = """
<mujoco model="pendulum">
  <worldbody>
    <body name="arm">
      <joint name="pin" type="hinge" axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


def run(capsys, *argv):
    """Exit code, stdout, stderr."""
    code = main([str(x) for x in argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_summary(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "simulate", "chain:1", *SHORT)
    assert code == 0
    rows = dict(re.findall(r"^(\S[^ ]*(?: \S+)?)  +(.*)$", out, re.MULTILINE))
    assert rows["model"] == "chain:1: 1 bodies, 2 degrees of freedom, float64"
    assert rows["steps"] == "5 of 0.02 s with radau2, 0.1 s in all"
    assert rows["failed"] == "none"
    assert re.fullmatch(r"\d+\.\d\d a step, at most \d+", rows["iterations"])
    assert re.fullmatch(r"about \S+ a step, at most \S+: rad, or m over the model's length", rows["error"])
    assert re.fullmatch(r".* J to .* J, change .* J, .* of the largest kinetic energy", rows["energy"])
    assert re.fullmatch(r".* s, .* simulated seconds a second; compiling took .* s", rows["wall time"])
    assert "compiling 5 steps of radau2 ... " in err
    assert not os.listdir(tmp_path)  # nothing is written unasked


@pytest.mark.slow
def test_another_dt_and_number_of_steps_compile_nothing(tmp_path):
    """In processes of their own: the second run finds every program in the user's cache folder."""
    command = [sys.executable, "-m", "pbad_jax", "simulate", "chain:1"]
    home = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | {"XDG_CACHE_HOME": str(tmp_path)}
    kept = []
    for more in (SHORT, ["--dt", "0.01", "--time", "0.07"], ["--no-cache", "--scheme", "radau1", *SHORT]):
        done = subprocess.run([*command, *more], env=home, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said = "are not kept" if "--no-cache" in more else f"are kept in {tmp_path / 'pbad_jax'} (--no-cache: not)"
        assert done.stderr.startswith(f"compiled programs {said}\n")
        kept.append({p.name for p in tmp_path.rglob("*-cache") if p.name.startswith(("jit_steps-", "jit__energies-"))})
    assert len(kept[0]) == 2 and kept[1] == kept[2] == kept[0]


def test_the_cache_is_left_as_it_was_found(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with compilation_cache.compilation_cache_in_use() as folder:
        assert str(folder) == before  # one that there is stays
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        settings = {name: getattr(jax.config, name) for name in compilation_cache.SETTINGS}
        with compilation_cache.compilation_cache_in_use() as folder:
            assert folder == tmp_path / "pbad_jax" and jax.config.jax_compilation_cache_dir == str(folder)
        assert jax.config.jax_compilation_cache_dir is None
        assert settings == {name: getattr(jax.config, name) for name in compilation_cache.SETTINGS}
        blocked = tmp_path / "file"
        blocked.write_text("")
        with pytest.raises(OSError):
            pbad.use_compilation_cache(blocked / "folder")
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.slow
def test_files(capsys, tmp_path):
    paths = [tmp_path / name for name in ("t.npz", "a.html", "e.png", "a.gif")]
    outputs = [x for pair in zip(("--out", "--html", "--plot", "--video"), paths) for x in pair]
    code, out, _ = run(capsys, "simulate", "chain:1", *SHORT, *outputs)
    assert code == 0
    assert out.count("wrote") == 4
    assert "<title>chain:1, radau2, dt = 0.02 s</title>" in paths[1].read_text()
    assert {p.name for p in tmp_path.iterdir()} == {p.name for p in paths}
    saved = pbad.load_trajectory(paths[0])
    assert saved.metadata["model"] == "chain:1"
    assert saved.metadata["dtype"] == "float64"
    np.testing.assert_allclose(saved.time, 0.02 * np.arange(1, 6))
    assert saved.xpos.shape == (5, 1, 3)


def test_float32_leaves_no_trace(capsys, tmp_path):
    before = jax.config.values["jax_enable_x64"]
    code, out, _ = run(capsys, "simulate", "chain:1", *SHORT, "--float32", "--out", tmp_path / "t.npz")
    assert code == 0
    assert "float32" in out
    assert pbad.load_trajectory(tmp_path / "t.npz").q.dtype == np.float32
    assert jax.config.values["jax_enable_x64"] == before


def test_chain_starts_horizontal_with_a_swing(capsys, tmp_path):
    run(capsys, "simulate", "chain:1", "--dt", "1e-6", "--time", "1e-6", "--out", tmp_path / "t.npz")
    saved = pbad.load_trajectory(tmp_path / "t.npz")
    np.testing.assert_allclose(saved.q[0], [np.pi / 2, 0], atol=1e-5)
    np.testing.assert_allclose(saved.v[0], [0, 0.2 * np.sqrt(9.81)], atol=1e-4)


@pytest.mark.parametrize("how", ["text", "file"])
def test_starts(capsys, tmp_path, how):
    q, v = [-0.3, 0.2], [-1.0, 0.5]
    if how == "file":
        np.save(tmp_path / "q.npy", q)
        np.save(tmp_path / "v.npy", v)
        given = ["--q0", tmp_path / "q.npy", "--v0", tmp_path / "v.npy"]
    else:
        given = ["--q0", "-0.3,0.2", "--v0", "-1,0.5"]
    code, _, err = run(capsys, "simulate", "chain:1", *SHORT, *given, "--out", tmp_path / "t.npz")
    assert code == 0, err
    model = pbad.chain(1)
    traj, _ = pbad.rollout(model, pbad.make_state(model, q, v), n_steps=5, options=pbad.Options(dt=0.02))
    np.testing.assert_allclose(pbad.load_trajectory(tmp_path / "t.npz").q, traj.q, rtol=1e-12)


def test_no_time_is_no_steps(capsys, tmp_path):
    code, out, _ = run(capsys, "simulate", "chain:1", "--time", "0", "--out", tmp_path / "t.npz",
                       "--html", tmp_path / "a.html")  # fmt: skip
    assert code == 0
    assert "0 of 0.05 s" in out
    assert pbad.load_trajectory(tmp_path / "t.npz").q.shape == (0, 2)


def test_time_that_is_no_multiple_is_said(capsys):
    code, out, _ = run(capsys, "simulate", "chain:1", "--dt", "0.02", "--time", "0.107")
    assert code == 0
    assert "--time 0.107 is no multiple of --dt 0.02; it was rounded to 0.1 s" in out


def test_failed_steps_give_code_1_and_advice(capsys):
    hard = ("simulate", "chain:1", "--dt", "0.02", "--time", "0.1", "--max-iterations", "1")
    code, out, _ = run(capsys, *hard, "--on-failure", "freeze")
    assert code == 1
    assert "5 of 5 steps, the first at step 1 (to 0.02 s)" in out
    assert "1 MAX_ITER: The iteration limit came first: halve dt, or raise max_iterations." in out
    assert "4 FROZEN: " in out


def test_hard_steps_are_made_in_parts_and_energy_is_accounted_for(capsys):
    code, out, _ = run(capsys, "simulate", "chain:1", "--dt", "0.02", "--time", "0.1", "--max-iterations", "1")
    assert code == 0
    assert re.search(r"^substeps +\d hard steps were made in parts, up to \d+$", out, re.MULTILINE), out
    work = re.search(r"^work +Gravity ([-+.e\d]+) J\n +the scheme itself (took|gave) ([.e\d-]+) J$", out, re.MULTILINE)
    assert work and float(work[1]) > 0, out
    assert "halve --dt" not in out
    code, out, _ = run(capsys, "simulate", "chain:1", "--dt", "0.4", "--time", "2.0")
    advice = re.search(
        r"took [.\d]+ J\n +that is (\d+)% of .*: halve --dt, or take --scheme radau3$", out, re.MULTILINE
    )
    assert code == 0 and advice and int(advice[1]) > 2, out


def test_info(capsys):
    code, out, _ = run(capsys, "info", "spider")
    assert code == 0
    assert out.startswith("spider: 9 bodies, 13 joints, nq 19, nv 18, nu 12\ntotal mass 13.6 kg")
    assert re.search(r"^root +free +torso +0:7 +0:6 +free$", out, re.MULTILINE)
    assert re.search(r"^knee3 +hinge +shin3 +18:19 +17:18 +-1 to 1$", out, re.MULTILINE)
    assert "knee_motor3" in out
    assert "fingerprint " + pbad.spider().fingerprint in out


def test_model_file(capsys, tmp_path):
    (tmp_path / "pendulum.xml").write_text(PENDULUM)
    code, out, err = run(capsys, "info", tmp_path / "pendulum.xml")
    assert code == 0, err
    assert re.search(r"^pin +hinge +arm +0:1 +0:1", out, re.MULTILINE)


# --- where it starts and what holds it ---------------------------------------------------------------------

DESK = """<mujoco model="desk"><compiler angle="radian"/>
  <worldbody>
    <body name="arm">
      <joint name="pin" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" mass="1"/>
      <body name="hand" pos="0 0 -1">
        <joint name="wrist" axis="0 1 0" range="-1 1"/><geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05" mass="1"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="servo" joint="pin" kp="1e4" kv="100" {more}/></actuator>{keys}
</mujoco>"""
HOME = '<keyframe><key name="up" qpos="3 0"/><key name="home" qpos="1 0.5" ctrl="1.01"/></keyframe>'
FLOATER = """<robot name="floater"><link name="base">
  <inertial><mass value="2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>
  <collision><geometry><box size="0.2 0.4 0.6"/></geometry></collision></link></robot>"""


def begun(tmp_path, text, *options):
    """What a command line would simulate."""
    path = tmp_path / "m.xml"
    path.write_text(text)
    args = parse(["simulate", str(path), *options])
    return begin(args, load_model(args)[0])


@pytest.mark.parametrize(
    ("keys", "options", "q", "control", "said"),
    [
        (HOME, "", [1, 0.5], 1.01, "starts at key 'home', held by its 1 position servo"),
        (HOME, "--key up", [3, 0], 3.0, "starts at key 'up', held by its 1 position servo"),
        (HOME.replace("home", "h"), "", [3, 0], 3.0, "starts at key 'up', held by its 1 position servo"),
        (HOME, "--q0 0.2,1.5", [0.2, 1.5], 0.0,
         "starts at --q0, nothing holds it (--hold would), 1 joint outside the range"),
        (HOME, "--hold", [1, 0.5], 1.01,
         "starts at key 'home', held by its 1 position servo, 1 degrees of freedom held by PD drives"),
        ("", "--hold --q0 0.2,0.1", [0.2, 0.1], 0.2,
         "starts at --q0, held by its 1 position servo, 1 degrees of freedom held by PD drives"),
        ("", "", [0, 0], 0.0, "starts at the file's reference pose, nothing holds it (--hold would)"),
    ],
)  # fmt: skip
def test_where_it_starts_and_what_holds_it(tmp_path, keys, options, q, control, said):
    found = begun(tmp_path, DESK.format(keys=keys, more=""), *options.split())
    np.testing.assert_allclose(found.state.q, q, rtol=1e-6)
    np.testing.assert_allclose(found.control, [control], rtol=1e-6)
    assert found.said == said


KNEES = """<mujoco><worldbody><body name="b"><joint name="hip" axis="0 1 0" range="-90 90"/><geom size="0.1"/>
<body name="c"><joint name="knee" axis="0 1 0" range="-120 -30"/><geom size="0.1" pos="0 0 1"/></body></body>
</worldbody>{}</mujoco>"""


def test_a_reference_pose_beyond_the_range_is_held_at_its_end(tmp_path):
    """But in a loop, which would not close there, only what is held; and --q0 and keyframes are as they are given."""
    found = begun(tmp_path, KNEES.format(""), "--hold")
    knee, q0 = -np.pi / 6, "--q0=0,0"
    np.testing.assert_allclose(found.state.q, [0, knee], rtol=1e-6)
    assert found.said.startswith(
        "starts at the file's reference pose, 1 joint at the end of the range instead of beyond"
    )
    assert "outside" not in found.said
    loop = KNEES.format('<equality><connect body1="b" body2="c" anchor="0 0 0"/></equality>')
    for text, options, q, said in ((loop, (), 0, "1 joint outside"), (KNEES.format(""), (q0,), 0, "1 joint outside")):
        found = begun(tmp_path, text, "--hold", *options)
        (drive,) = [f for f in found.model.forces if isinstance(f, forces.PDDrive)]
        np.testing.assert_allclose(found.state.q, [0, q], atol=1e-9)
        np.testing.assert_allclose(drive.target, [0, 0 if options else knee], rtol=1e-6, atol=1e-9)
        assert said in found.said and "instead" not in found.said


def test_a_servo_that_cannot_hold_the_start_is_named(tmp_path):
    text = DESK.format(keys=HOME, more='ctrlrange="-2 2"')
    said = begun(tmp_path, text, "--key", "up").said
    assert said == "starts at key 'up', held by its 1 position servo, 1 of them need more than their control range"


@pytest.mark.thorough
def test_a_held_robot_stays(capsys, tmp_path):
    """Servo and PD drive together: a second of gravity moves the arm by less than 0.02 rad."""
    (tmp_path / "desk.xml").write_text(DESK.format(keys=HOME.replace("1.01", "1.0"), more=""))
    code, out, err = run(
        capsys, "simulate", tmp_path / "desk.xml", "--time", "1", "--hold", "--out", tmp_path / "t.npz"
    )
    assert code == 0, err
    assert "starts at key 'home', held by" in out
    np.testing.assert_allclose(pbad.load_trajectory(tmp_path / "t.npz").q, [[1, 0.5]] * 20, atol=0.02)


def test_a_urdf_that_floats_gets_a_ground(tmp_path):
    """Through its lowest point, along gravity; not below one that is fixed, nor with --no-ground."""
    found = begun(tmp_path, FLOATER, "--floating-base")
    assert found.said == "starts at the file's reference pose, nothing holds it, on a ground at -0.3 m"
    (touch,) = [f for f in found.model.forces if isinstance(f, forces.Contact)]
    assert float(touch.surface.distance(np.array([0.0, 5.0, -0.3]))) == pytest.approx(0, abs=1e-6)
    assert found.model.topology.geom_types[-1] == "plane" and found.model.topology.inactive == (
        "contact between bodies",
    )
    for options in (["--floating-base", "--no-ground"], []):
        found = begun(tmp_path, FLOATER, *options)
        assert "ground" not in found.said and not any(isinstance(f, forces.Contact) for f in found.model.forces)


@pytest.mark.thorough
def test_what_stands_is_not_compared_with_its_motion(tmp_path, capsys):
    """Of a floater that lies there is no kinetic energy to speak of, so nothing is a share of it."""
    path = tmp_path / "robot.urdf"
    path.write_text(FLOATER)
    assert main(["simulate", str(path), "--floating-base", "--time", "0.1", "--no-cache"]) == 0
    assert "of the largest kinetic energy" not in capsys.readouterr().out


BAD_CALLS = {
    "": "COMMAND",
    "simulat chain:1": "'simulat'.*'simulate'",
    "simulate": "MODEL",
    "simulate chain:1 --dt -1": r"--dt is -1\.0; .*positive.*--dt 0\.05",
    "simulate chain:1 --dt 0": r"--dt is 0\.0",
    "simulate chain:1 --dt nan": "--dt is nan",
    "simulate chain:1 --dt fast": "--dt: invalid float value: 'fast'",
    "simulate chain:1 --dtt 1": "'--dtt'.*did you mean --dt",
    "simulate chain:1 --time -1": r"--time is -1\.0",
    "simulate chain:1 --time inf": "--time is inf",
    "simulate chain:1 --time 1e12": r"--time 1e\+12 .*GiB.*Shorten --time",
    "simulate chain:1 --scheme radua2": "'radua2'.*Did you mean 'radau2'",
    "simulate chain:1 --tolerance -1": r"tolerance is -1\.0",
    "simulate chain:1 --max-iterations 0": "max_iterations is 0",
    "simulate nowhere.xml": "'nowhere.xml' is neither a file nor one of chain:10, swimmer, spider",
    "simulate spidre": "did you mean 'spider'",
    "simulate spare.xml": "did you mean 'spores.xml'",
    "simulate chain:0": "'chain:0'.*write chain:10",
    "simulate chain:x": "'chain:x'.*write chain:10",
    "simulate chain": "'chain'.*write chain:10",
    "simulate chain:1 --q0 1,2,3": r"--q0 has 3 numbers; .*wants 2: joint0\[0:2\]",
    "simulate chain:1 --v0 1": "--v0 has 1 numbers",
    "simulate spider --v0 1": r"wants 18: root\[0:6\], yaw0\[6:7\], .* \.\.\. \(13 joints\)",
    "simulate chain:1 --q0 1,two": "--q0: entry 1 is 'two'",
    "simulate chain:1 --q0 -1,nan": r"q\[1\] of joint 'joint0' is nan",
    "simulate chain:1 --q0 nowhere.npy": "--q0: there is no file 'nowhere.npy'",
    "simulate chain:1 --q0 nan.npy": r"q\[0\] of joint 'joint0' is nan",
    "simulate chain:1 --q0 pickle.npy": "'pickle.npy' cannot be read.*numpy.save",
    "simulate chain:1 --q0 text.npy": "'text.npy' cannot be read",
    "simulate chain:1 --out nowhere/t.npz": "--out 'nowhere/t.npz' cannot be written",
    "simulate chain:1 --html .": "--html '.' is a folder",
    "simulate chain:1 --video a.avi": "'.avi' is no format of a moving picture",
    "simulate chain:1 --out a --plot a": "--plot 'a' is also an input or another output",
    "simulate chain:1 --key home": "key='home': model 'chain:1' has no keyframe of that name; it has none",
    "simulate chain:1 --key home --q0 0,0": "--key home and --q0 both say where it starts",
    "simulate spider --ground": "--ground: model 'spider' has a plane of its own",
    "info spores.xml --package-dir nowhere": "--package-dir 'nowhere' is no folder",
    "simulate spores.xml --out spores.xml": "spores.xml",
    "simulate chain:1 --plot e.foo": "suffix 'foo'",
    "info spores.xml": "spores.xml",
    "info chain:1 --dt 1": "'--dt' is no argument of pbad-jax info",
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_calls_give_one_line_and_code_2(capsys, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spores.xml").write_text("<mujoco><worldbody>")
    (tmp_path / "text.npy").write_text("1,2")
    np.save("nan.npy", [np.nan, 0])
    np.save("pickle.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    before = sorted(os.listdir())
    code, out, err = run(capsys, *call.split())
    assert code == 2
    assert out == ""
    assert re.fullmatch(r"pbad-jax: error: [^\n]+\n", err)
    assert re.search(BAD_CALLS[call], err), err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(("option", "module"), [("--html", "viser"), ("--plot", "matplotlib.backend_bases")])
def test_missing_packages(capsys, tmp_path, monkeypatch, option, module):
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = run(capsys, "simulate", "chain:1", option, tmp_path / "a.png")
    assert code == 2
    assert 'pip install "pbad_jax[viz]"' in err and err.count("\n") == 1


@pytest.mark.slow
def test_interrupt_ends_a_long_run_at_once(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pbad_jax",
        "simulate",
        "chain:1",
        "--dt",
        "1e-5",
        "--time",
        "50",
        "--out",
        "t.npz",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().endswith(" s\n"):  # it has been compiled
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == -signal.SIGINT
    assert not os.listdir(tmp_path)


def test_as_a_process(tmp_path):
    command = [sys.executable, "-m", "pbad_jax", "simulate", "chain:1", *SHORT, "--out", "t.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "failed      none" in done.stdout
    done = subprocess.run([*command[:4], "chain:x"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    done = subprocess.run([*command[:3], "--version"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == f"pbad_jax {pbad.__version__}\n"


CART = """<mujoco><compiler angle="radian"/>
  <default><joint axis="0 1 0"/><geom type="capsule" size="0.05" fromto="0 0 0 1 0 0"/></default>
  <worldbody><body name="base"><geom/><joint name="turn"/>
    <joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>
    <body name="crank"><joint name="crank"/><geom/>
      <body name="rod" pos="1 0 0"><joint name="rod"/><geom/></body></body>
    <body name="rocker" pos="2 0 -1"><joint name="rocker"/><geom/></body>
    <body name="antenna"><joint name="antenna"/><geom/></body>
  </body></worldbody>
  <equality><connect body1="rod" body2="rocker" anchor="1 0 0"/></equality>{motor}</mujoco>"""


def test_held_is_what_is_driven_or_free_but_no_base_and_no_loop(tmp_path):
    """A base of slides floats, and a crank leads its loop; where nothing is driven all is held."""
    motor = '<actuator><motor joint="crank"/></actuator>'
    for more, held in ((motor, ["crank", "antenna"]), ("", ["turn", "x", "z", "crank", "rod", "rocker", "antenna"])):
        model = begun(tmp_path, CART.format(motor=more), "--hold").model
        names = {j.v: j.name for j in model.topology.joints}
        assert [names[v] for v in model.forces[-1].v_index] == held


def test_a_servo_on_a_rope_holds_what_moves_its_sites():
    """A rotor has no length to hold."""
    bodies = [
        Body("upper", 1.0, inertia=np.eye(3), joints=[Joint("hinge", (0, 1, 0), name="a")]),
        Body("lower", 1.0, (0.1, 0, 0), np.eye(3), "upper", (1, 0, 0), joints=[Joint("hinge", (0, 1, 0), name="b")]),
        Body("cart", 1.0, inertia=np.eye(3), joints=[Joint("slide", (1, 0, 0), name="c")]),
    ]
    rope, servo = (pbad.Site("lower", (1, 0, 0)), pbad.Site(None, (1, 0, 1))), {"gain": 2.0, "bias": (0, -2.0, 0)}
    drives = [
        pbad.Actuator(pbad.Site("cart"), "rotor", gear=(1, 0, 0, 0, 0, 0), **servo),
        pbad.Actuator(rope, "winch", **servo),
    ]
    model = pbad.build_model(bodies, actuators=drives)
    assert position_servos(model) == [(1, [0, 1])]
    assert resting_controls(model, [(1, [0, 1])], np.zeros(3))[0].tolist() == [0.0, np.sqrt(2.0)]
