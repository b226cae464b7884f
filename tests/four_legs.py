"""A small robot on four legs, each a hinge with a position servo."""

ROBOT = """<mujoco><worldbody><body name="trunk" pos="0 0 0.3"><freejoint/>
  <geom type="box" size="0.2 0.1 0.05" mass="5"/>
  {legs}</body></worldbody><actuator>{motors}</actuator>
  <keyframe><key name="home" qpos="0 0 0.3 1 0 0 0 0.1 0.1 0.1 0.1" {control}/></keyframe></mujoco>"""
LEG = """<body pos="{x} {y} 0"><joint name="hip{k}" axis="0 1 0" range="-60 60"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.25" mass="0.3"/></body>"""


def four_legs(motors: str = '<position joint="hip{k}" kp="40"/>', control: str = 'ctrl="0.1 0.1 0.1 0.1"') -> str:
    """An MJCF file as text; `{k}` is the number of a leg."""
    legs = "".join(
        LEG.format(x=x, y=y, k=k) for k, (x, y) in enumerate([(0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)])
    )
    return ROBOT.format(control=control, legs=legs, motors="".join(motors.format(k=k) for k in range(4)))
