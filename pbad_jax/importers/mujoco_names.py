"""Unique names for all that a compiled model has."""

from pbad_jax.importers.mjcf import mujoco_module


class Names:
    """Unique names: the file's own, else body{i}, joint{i}, ..., i counted from 0 without the world.

    Actuators without one are called after the joint, tendon or site that they act on, the first of each.
    """

    def __init__(self, m):
        mujoco = mujoco_module()
        kind = mujoco.mjtObj

        def given(what, count):
            return [mujoco.mj_id2name(m, what, i) or "" for i in range(count)]

        self._given_bodies = given(kind.mjOBJ_BODY, m.nbody)
        self.body = [""] + _filled(self._given_bodies[1:], "body")
        self.joint = _filled(given(kind.mjOBJ_JOINT, m.njnt), "joint")
        self.key = _filled(given(kind.mjOBJ_KEY, m.nkey), "key")
        self.tendon = _filled(given(kind.mjOBJ_TENDON, m.ntendon), "tendon")
        self.site = _filled(given(kind.mjOBJ_SITE, m.nsite), "site")
        own = given(kind.mjOBJ_ACTUATOR, count_of(m, "nactuator", m.nu))
        self.actuator = _filled(self._after_what_they_move(m, own), "actuator")
        self.sensor = _filled(given(kind.mjOBJ_SENSOR, m.nsensor), "sensor")

    def _after_what_they_move(self, m, own: list[str]) -> list[str]:
        kinds = mujoco_module().mjtTrn
        named = {
            int(kinds.mjTRN_JOINT): self.joint,
            int(kinds.mjTRN_JOINTINPARENT): self.joint,
            int(kinds.mjTRN_TENDON): self.tendon,
            int(kinds.mjTRN_SITE): self.site,
        }
        out = list(own)
        for i, name in enumerate(own):
            kind, target = int(m.actuator_trntype[i]), int(m.actuator_trnid[i, 0])
            if not name and kind in named and named[kind][target] not in out:
                out[i] = named[kind][target]
        return out

    def mujoco_body(self, i: int) -> str:
        """As the file has it, perhaps empty."""
        return self._given_bodies[i]


def _filled(names: list[str], prefix: str) -> list[str]:
    taken = set(names)
    out = []
    for i, name in enumerate(names):
        name = name or f"{prefix}{i}"
        while not names[i] and name in taken:
            name += "_"
        taken.add(name)
        out.append(name)
    return out


def count_of(m, field: str, default: int) -> int:
    """A number that only newer versions of MuJoCo have."""
    return int(getattr(m, field, default))
