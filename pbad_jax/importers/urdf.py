"""URDF before MuJoCo's compiler: a clean copy with links, inertials and joints only, every reference checked.

MuJoCo maps URDF poorly by default (it fuses links, and invents mass for links without an inertial), so the copy
carries its own compiler options. Shapes are read by urdf_shapes.py, inertias by urdf_inertia.py.
"""

from collections import Counter

from pbad_jax.errors import ModelFileError, UnsupportedFeatureError
from pbad_jax.importers import urdf_inertia
from pbad_jax.importers.features import idle, refused
from pbad_jax.importers.mjcf import Prepared
from pbad_jax.importers.nodes import MAX_BODIES, Node, cut, nearest, numbers
from pbad_jax.importers.roots import Roots
from pbad_jax.importers.urdf_shapes import Shapes

FILTER = "drake:collision_filter_group"
_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")
_SCALAR = ("revolute", "continuous", "prismatic")
_COMPILER = {
    "fusestatic": "false",
    "inertiafromgeom": "false",
    "balanceinertia": "true",
    "boundmass": "1e-14",  # what MuJoCo compiles at all; the model gets its numbers from urdf_inertia.py
    "boundinertia": "1e-14",
}
# element -> its attributes; only these have a meaning here
_ATTRIBUTES = {
    "origin": {"xyz", "rpy"},
    "axis": {"xyz"},
    "parent": {"link"},
    "child": {"link"},
    "mass": {"value"},
    "inertia": {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"},
    "box": {"size"},
    "sphere": {"radius"},
    "cylinder": {"radius", "length"},
    "capsule": {"radius", "length"},
    "mesh": {"filename", "scale"},
    "mimic": {"joint", "multiplier", "offset"},
    "dynamics": {"damping", "friction"},
    "limit": {"lower", "upper", "effort", "velocity"},
}
_OPEN = {"dynamics", "limit"}  # vendors add attributes here; only near misses are errors
_NUMERIC = frozenset().union(*_ATTRIBUTES.values()) - {"link", "filename", "joint"}
_CHILDREN = {
    "robot": {"link", "joint", "material", FILTER},
    FILTER: {"drake:member", "drake:member_group", "drake:ignored_collision_filter_group"},
    "link": {"inertial", "visual", "collision"},
    "joint": {"origin", "parent", "child", "axis", "dynamics", "limit", "mimic"},
    "inertial": {"origin", "mass", "inertia"},
    "collision": {"origin", "geometry", "material"},
}
# elements without physics: counted in the report
_IGNORED = {
    "robot": set("gazebo transmission sensor ros2_control mujoco group disable_collisions".split()),
    "link": set(
        """contact self_filter self_collision_checking collision_checking origin kinematic gravity surface material
        sensor verbose audio projector gripper""".split()
    ),
    "joint": set("safety_controller calibration safety hardwareInterface".split()),
    "inertial": {"material"},
}


def prepare(root: Node, roots: Roots, *, meshes: bool = True) -> Prepared:
    """A clean copy for the compiler, the shapes of every link, and what is lost.

    Raises:
        ModelFileError: with file:line; bad names, references, trees or numbers.
        UnsupportedFeatureError: a document that must be expanded by xacro first.
    """
    # every word is known or reported; names are unique
    out = Prepared(
        Node("robot", {"name": cut(root.attrib.get("name", ""))}, root.file, root.line), root.attrib.get("name", "")
    )
    _check_words(root, out)
    links = _named(root.all("link"), "link")
    joints = _named(root.all("joint"), "joint")

    # links form trees
    if not links:
        raise ModelFileError(f"{root.where}: the <robot> has no links; is this a xacro file that was not expanded?")
    if len(links) > MAX_BODIES:
        raise ModelFileError(f"{root.where}: {len(links)} links; the limit is {MAX_BODIES}")
    above = _check_tree(links, joints)

    # the copy for MuJoCo: how to compile, links with their inertials, joints
    out.root.children.append(
        Node("mujoco", {}, root.file, root.line, [Node("compiler", dict(_COMPILER), root.file, root.line)])
    )
    out.inertials = urdf_inertia.inertials(links, joints, above, out)
    out.root.children += [
        Node("link", {"name": n}, x.file, x.line, urdf_inertia.written(out.inertials[n], (x.file, x.line)))
        for n, x in links.items()
    ]
    out.root.children += [_joint(n, x, joints, links, out) for n, x in joints.items()]

    # shapes go by another way, straight to the model
    shapes = Shapes(root, roots, out, meshes)
    out.shapes = {name: shapes.of_link(link) for name, link in links.items()}
    shapes.report()
    _note_limits(joints, out)
    _check_filters(root.all(FILTER), links, out)
    return out


def _check_words(root: Node, out: Prepared) -> None:
    """Sort every element into known, ignored and unsupported, and check attributes and numbers."""
    # from the root down, but not into what has no meaning here
    ignored: Counter[str] = Counter()
    stack = [root]
    while stack:
        node = stack.pop()
        if node.tag.startswith("xacro:"):
            raise UnsupportedFeatureError(
                f"{node.where}: <{cut(node.tag)}>: expand the file with xacro first", (f"<{cut(node.tag)}>",)
            )
        # known children are walked on, ignored ones counted; the rest is unsupported, with the nearest word
        known, others = _CHILDREN.get(node.tag), _IGNORED.get(node.tag, set())
        for child in node.children:
            if known is None or child.tag in known or child.tag.startswith("xacro:"):
                stack.append(child)
            elif child.tag in others or node.tag == "collision":
                ignored[child.tag] += 1
            else:
                near = nearest(child.tag, known | others) if ":" not in child.tag else ""
                out.unsupported.append(refused("element", f" <{cut(child.tag)}> of <{node.tag}> ({child.where}{near})"))
        _check_attributes(node, ignored)
    if ignored:
        out.inactive.append(idle("URDF extensions", ": " + ", ".join(f"{k} ({n})" for k, n in sorted(ignored.items()))))


def _check_attributes(node: Node, ignored: Counter[str]) -> None:
    known = _ATTRIBUTES.get(node.tag)
    if known is None:
        return
    for name in node.attrib:
        if name in known:
            if name in _NUMERIC:
                numbers(node, name)
            continue
        near = nearest(name, known)
        extension = any(k in name for k in known) or len(name) < 3 or not near.startswith("; did")
        if node.tag not in _OPEN or not extension:
            raise ModelFileError(f"{node.where}: <{node.tag}> has no attribute {cut(name)!r}{near}")
        ignored[f"{node.tag} {cut(name)}"] += 1


def _named(nodes: list[Node], what: str) -> dict[str, Node]:
    out: dict[str, Node] = {}
    for node in nodes:
        name = node.attrib.get("name", "")
        if not name:
            raise ModelFileError(f"{node.where}: a <{what}> has no name")
        if name in out:
            raise ModelFileError(
                f"{node.where}: two {what}s are called {cut(name)!r}: lines {out[name].line} and {node.line}. "
                "Rename one."
            )
        out[name] = node
    return out


def _end(joint: Node, side: str, links: dict[str, Node]) -> str:
    """The parent's or child's link of a joint."""
    node, name = joint.first(side), joint.attrib["name"]
    link = node.attrib.get("link", "") if node is not None else ""
    if not link:
        raise ModelFileError(f"{joint.where}: joint {cut(name)!r} needs <{side} link=.../>")
    if link not in links:
        raise ModelFileError(
            f"{joint.where}: {side} of joint {cut(name)!r}: no link is called {cut(link)!r}{nearest(link, links)}"
        )
    return link


def _check_tree(links: dict[str, Node], joints: dict[str, Node]) -> dict[str, tuple[str, str]]:
    """Parent link and joint of every link, those nearer to a root first; refuses two parents and circles."""
    # every link hangs on one joint at most
    above: dict[str, tuple[str, str]] = {}
    for name, joint in joints.items():
        parent, child = _end(joint, "parent", links), _end(joint, "child", links)
        if child in above:
            raise ModelFileError(
                f"{joint.where}: link {cut(child)!r} has two parents: joint {cut(above[child][1])!r} (line "
                f"{joints[above[child][1]].line}) and joint {cut(name)!r}. A link hangs on one joint; remove one."
            )
        above[child] = (parent, name)

    # walk up from every link; one that is met again on the way closes a cycle
    done: set[str] = set()
    for link in links:
        path: dict[str, None] = {}
        while link in above and link not in done:
            if link in path:
                cycle = list(path)[list(path).index(link) :] + [link]
                raise ModelFileError(
                    f"{links[link].where}: the joints form a cycle: " + " <- ".join(map(cut, cycle[:20]))
                )
            path[link] = None
            link = above[link][0]
        done.update(path)

    # how far each is from its root, so that parents come before their children
    depth = {name: 0 for name in links if name not in above}
    for link in links:
        path = {}
        while link not in depth:
            path[link] = None
            link = above[link][0]
        for k, name in enumerate(reversed(path)):
            depth[name] = depth[link] + k + 1
            if depth[name] > 1000:
                raise ModelFileError(
                    f"{links[name].where}: link {cut(name)!r} is more than 1000 joints from its root; that is the limit"
                )
    return dict(sorted(above.items(), key=lambda item: depth[item[0]]))


# --- joints -------------------------------------------------------------------------------------------------


def _strip(node: Node) -> dict[str, str]:
    """The attributes with a meaning, of the right lengths."""
    for key in ("xyz", "rpy"):
        node.vector(key, 3, (0, 0, 0))
    return {k: v for k, v in node.attrib.items() if k in _ATTRIBUTES[node.tag]}


def _joint(name: str, node: Node, joints: dict[str, Node], links: dict[str, Node], out: Prepared) -> Node:
    """The copy of a joint, its type, axis, limits and dynamics checked; what it follows goes into `out`."""
    # types that are known; MuJoCo has a floating joint in the world only
    kind = node.attrib.get("type", "")
    if kind not in _TYPES:
        raise ModelFileError(
            f"{node.where}: type {cut(kind)!r} of joint {cut(name)!r} is not a joint type{nearest(kind, _TYPES)}"
        )
    if kind == "floating" and _end(node, "parent", links) != "world":
        raise UnsupportedFeatureError(
            f"{node.where}: joint {cut(name)!r} is floating below link {_end(node, 'parent', links)!r}; only a "
            "link that floats in 'world' can be loaded. Make it a root and pass floating_base=True.",
            (f"floating joint {name!r}",),
        )

    # the attributes that have a meaning, with numbers that a joint of this type can have
    copy = Node("joint", {"name": name, "type": kind}, node.file, node.line)
    for child in node.children:
        keep = {k: v for k, v in child.attrib.items() if k in _ATTRIBUTES.get(child.tag, ())}
        if child.tag in ("origin", "axis"):
            keep = _strip(child)
        if child.tag == "axis" and kind in ("fixed", "floating"):
            continue
        if child.tag == "axis" and not any(child.vector("xyz", 3, (1, 0, 0))):
            raise ModelFileError(f"{child.where}: axis of joint {cut(name)!r} is zero; it must have a direction")
        # speeds are not bounded here; damping that would drive is not taken
        if child.tag == "limit":
            _check_limit(child, name, kind)
            keep.pop("velocity", None)
        if child.tag == "dynamics":
            keep |= _dynamics(child, name, out)
        # to follow another joint is an equality, added when the copy is compiled
        if child.tag == "mimic":
            _mimic(child, name, joints, out)
        elif child.tag in _CHILDREN["joint"]:
            copy.children.append(Node(child.tag, keep, child.file, child.line))
    return copy


def _check_limit(node: Node, name: str, kind: str) -> None:
    lower, upper = node.number("lower", 0.0), node.number("upper", 0.0)
    if kind in ("revolute", "prismatic") and lower > upper:
        raise ModelFileError(
            f"{node.where}: lower of joint {cut(name)!r} is {lower:g}, its upper {upper:g}; "
            "lower must not exceed upper. Swap them."
        )


def _dynamics(node: Node, name: str, out: Prepared) -> dict[str, str]:
    """Damping and friction, without those that would create energy."""
    kept = {}
    for key in ("damping", "friction"):
        value = node.number(key, 0.0)
        if value < 0:
            why = f" of joint {cut(name)!r} is {value:g}; below 0 energy is created ({node.where})"
            out.unsupported.append(refused(key, why))
        kept[key] = repr(max(value, 0.0))
    return kept


def _mimic(node: Node, name: str, joints: dict[str, Node], out: Prepared) -> None:
    """Write down the joint, the one that it follows ("" where that is fixed), multiplier and offset."""
    leader = node.attrib.get("joint", "")
    kind, above = (joints[k].attrib.get("type", "") if k in joints else "" for k in (name, leader))
    if kind == "fixed":
        return
    if leader != name and kind in _SCALAR and above in (*_SCALAR, "fixed"):
        leads = leader if above in _SCALAR else ""
        out.mimics.append((name, leads, node.number("multiplier", 1.0), node.number("offset", 0.0)))
        return
    missing = "" if leader in joints else f", which does not exist ({node.where}){nearest(leader, joints)}"
    out.unsupported.append(refused("mimic", f": joint {name!r} follows {leader!r}{missing}"))


def _note_limits(joints: dict[str, Node], out: Prepared) -> None:
    limits = [x for joint in joints.values() if joint.attrib.get("type") != "fixed" for x in joint.all("limit")]
    for key in ("effort", "velocity"):
        count = sum(key in x.attrib for x in limits)
        if count:
            out.inactive.append(idle(f"{key} limits", f" ({count} joints)"))


def _check_filters(groups: list[Node], links: dict[str, Node], out: Prepared) -> None:
    """Groups whose links do not touch those of other groups: bodies of a URDF touch one another not at all.

    Raises:
        ModelFileError: a group of links, or without groups, that are not there.
    """
    names = _named(groups, FILTER)
    for name, group in names.items():
        for child in [c for c in group.children if c.tag in _CHILDREN[FILTER]]:
            key, known = ("link", links) if child.tag == "drake:member" else ("name", names)
            given = child.attrib.get(key, "")
            if given not in known:
                raise ModelFileError(
                    f"{child.where}: {FILTER} {cut(name)!r}: no {'link' if key == 'link' else 'group'} is called "
                    f"{cut(given)!r}{nearest(given, known)}"
                )
    if names:
        out.inactive.append(
            idle("contact filters", f" ({len(names)} groups; bodies of a URDF do not touch one another)")
        )
