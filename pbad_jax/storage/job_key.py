"""What a job is: a hash of everything that its numbers depend on, the same in every process.

Values count by what they hold: arrays by dtype, shape and bytes; dataclasses by all their fields, static ones too;
other objects by their attributes, or by what `pickle` would keep of them; functions by name, code, defaults,
attributes, what they close over and the globals that they name; classes of the user by their name and all that they
hold. What cannot be told from another of its kind (a lock, a file, a generator) is refused by name.

Not seen: what a function looks up while it runs (a file, `getattr` by a computed name, attributes of attributes of
modules), the code of installed libraries, which count by their names alone, and the machine. So the version of pbad_jax
is part of a key; that of JAX, the device and its number of cores are not: they change numbers by rounding.
"""

import copyreg
import dataclasses
import dis
import enum
import functools
import hashlib
import numbers
import sys
import sysconfig
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pbad_jax.errors import CheckpointError
from pbad_jax.version import __version__

INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
MADE = {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__"}  # by dataclasses
SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
FIX = "give what it holds as arrays (jax.tree_util.Partial), numbers, functions or dataclasses of them"


def job_key(**parts: Any) -> str:
    """64 hexadecimal digits that differ where any of the parts does.

    Raises:
        CheckpointError: something in them cannot be told from another of its kind; says where and what.
    """
    return _Walk().digest({"version": __version__, **parts}, "long_rollout").hex()


class _Walk:
    """One walk over a tree of values, which may share parts and meet itself."""

    def __init__(self):
        self.known: dict[int, tuple[bytes, Any]] = {}  # by id; the value too, so that no other gets its id
        self.open: list[int] = []  # ids of what is being walked, from the root on

    def digest(self, x: Any, where: str) -> bytes:
        """32 bytes of a value; `where` it is, for messages."""
        if id(x) in self.known:
            return self.known[id(x)][0]
        if id(x) in self.open:
            return _hash("again", str(self.open.index(id(x))))
        self.open.append(id(x))
        kind, parts = self.described(x, where)
        found = _hash(kind, *parts)
        self.open.pop()
        self.known[id(x)] = (found, x)
        return found

    def all(self, values: Any, where: str) -> list[bytes]:
        """Of every value, in this order."""
        return [self.digest(x, f"{where}[{i}]") for i, x in enumerate(values)]

    def named(self, values: dict[str, Any], where: str) -> list[bytes]:
        """Of values by name, whatever their order."""
        return [_hash(name, self.digest(values[name], f"{where}.{name}")) for name in sorted(values)]

    def described(self, x: Any, where: str) -> tuple[str, list[bytes]]:
        """A kind, and what tells one of it from another."""
        # numbers, text, arrays and members of enumerations by value
        plain = _plain(x)
        if plain is not None:
            return plain
        if isinstance(x, enum.Enum):
            return f"{_name(type(x))}.{x.name}", [self.digest(x.value, where)]

        # containers by their entries, in their order but for sets
        if isinstance(x, list | tuple):
            return f"list {_name(type(x))}", [*self.all(x, where), *self.kind(x, where)]
        if isinstance(x, dict | types.MappingProxyType):
            items = [(self.digest(k, where), self.digest(v, f"{where}[{k!r:.30}]")) for k, v in x.items()]
            own = self.digest(getattr(x, "default_factory", None), where)
            return f"dict {_name(type(x))}", [own, *(_hash(*item) for item in items), *self.kind(x, where)]
        if isinstance(x, set | frozenset):
            return "set", [*sorted(self.all(x, where)), *self.kind(x, where)]

        # modules by name, classes by what the user has written of them
        if isinstance(x, types.ModuleType):
            return f"module {x.__name__}", []
        if isinstance(x, type):
            return f"class {_name(x)}", self.of_class(x, where)

        # functions by their code, any other object by what it holds
        return self.function(x, where) or (f"object {_name(type(x))}", [*self.kind(x, where), *self.held(x, where)])

    def kind(self, x: Any, where: str) -> list[bytes]:
        """The class of an object where it is the user's, and what a container has beside its entries."""
        if _is_installed(type(x).__module__):
            return []
        beside = _beside(x) if isinstance(x, list | tuple | dict | set | frozenset) else {}
        return [self.digest(type(x), where), *self.named(beside, where)]

    def function(self, x: Any, where: str) -> tuple[str, list[bytes]] | None:
        """The same of what Python calls a function or a method, and of what wraps one; None of anything else."""
        if isinstance(x, types.FunctionType):
            return f"function {x.__qualname__}", self.written(x, f"{where}.{x.__qualname__}")
        if isinstance(x, functools.partial):
            parts = (x.func, x.args, x.keywords)
            return f"partial {_name(type(x))}", [*self.kind(x, where), *(self.digest(part, where) for part in parts)]
        if isinstance(x, types.MethodType):
            return "method", [self.digest(x.__func__, where), self.digest(x.__self__, where)]
        if isinstance(x, types.BuiltinFunctionType):
            own = None if isinstance(x.__self__, types.ModuleType) else x.__self__
            return f"builtin {x.__qualname__}", [self.digest(own, where)]
        if hasattr(x, "__wrapped__") and not dataclasses.is_dataclass(x) and _is_installed(type(x).__module__):
            return f"wrapped by {_name(type(x))}", [self.digest(x.__wrapped__, where)]  # jax.jit, functools.cache
        return None

    def held(self, x: Any, where: str) -> list[bytes]:
        """What an object holds: the fields of a dataclass and what is beside them, else what a copy is made from."""
        # a dataclass shows its fields
        if dataclasses.is_dataclass(x):
            fields = {f.name: getattr(x, f.name, None) for f in dataclasses.fields(x)}
            return self.named(_beside(x) | fields, where)

        # others show what pickle would make a copy from
        reduced = copyreg.dispatch_table.get(type(x))
        try:
            parts: Any = reduced(x) if reduced else x.__reduce_ex__(4)
        except Exception:  # whatever a class makes of it; those of C mostly a TypeError
            raise CheckpointError(
                f"{where} is {_name(type(x))} {x!r:.60}, which the next process cannot tell from another one: {FIX}"
            ) from None
        # a name alone: it is a global of its module
        if isinstance(parts, str):
            return [_hash(f"global {getattr(x, '__module__', '')}.{parts}")]

        # else maker, arguments, state and entries, without what is only computed once
        maker, arguments, state, *items = *parts, *(None,) * (3 - len(parts))
        if isinstance(state, dict):
            state = {k: v for k, v in state.items() if k not in _cached(type(x))}
        items = [None if part is None else list(part) for part in items[:2]]
        return [self.digest(part, where) for part in (maker, arguments, state, items)]

    def of_class(self, cls: type, where: str) -> list[bytes]:
        """What a class of the user holds, and those that it is made of: methods, values, classes within it."""
        found, inner = [], any(_is_package(base.__module__) for base in cls.__mro__)
        for base in cls.__mro__:
            if _is_installed(base.__module__):
                continue
            own = {k: _function_of(v) for k, v in vars(base).items() if k not in MADE and type(v) not in SLOTS}
            if issubclass(base, enum.Enum):  # the rest is how Python makes one
                own = {k: v for k, v in own.items() if isinstance(v, types.FunctionType)} | {
                    m.name: m.value for m in base
                }

            # of what Python and other libraries keep in a class only what runs
            kept = {k: v for k, v in own.items() if not (k[:2] == "__" or k == "_abc_impl" or inner and k[0] == "_")}
            runs = {k: v for k, v in own.items() if isinstance(v, types.FunctionType)}
            found.append(_hash(_name(base), *self.named(runs | kept, where)))
        return found

    def written(self, f: types.FunctionType, where: str) -> list[bytes]:
        """Code, defaults, closure and, but for functions of libraries, the globals that it names."""
        parts = [self.code(f.__code__, where), self.digest((f.__defaults__, f.__kwdefaults__), where)]
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:  # not yet
                continue
            parts.append(_hash(name, self.digest(content, f"{where}.{name}")))
        if _is_installed(f.__globals__.get("__name__")):
            return parts
        return parts + self.named(_globals_of(f), where) + self.named(vars(f), where)

    def code(self, code: types.CodeType, where: str) -> bytes:
        """Instructions, constants and names; not where they are written."""
        nested, consts = types.CodeType, code.co_consts
        constants = [self.code(x, where) if isinstance(x, nested) else self.digest(x, where) for x in consts]
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _hash("code", code.co_code, code.co_exceptiontable, repr(names), *constants)


def _hash(*parts: str | bytes) -> bytes:
    h = hashlib.sha256()
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        h.update(len(part).to_bytes(8, "big"))
        h.update(part)
    return h.digest()


def _plain(x: Any) -> tuple[str, list[bytes]] | None:
    """Of numbers, text and arrays; None of anything else."""
    # singletons and truth values, whose kind says all; members of enumerations are no plain numbers
    if x is None or x is Ellipsis or x is NotImplemented or isinstance(x, bool | np.bool_):
        return f"{x}", []
    if isinstance(x, enum.Enum):
        return None

    # text and numbers, written so that no digit is lost
    if isinstance(x, str):
        return "str", [_hash(x)]
    if isinstance(x, bytes | bytearray):
        return "bytes", [_hash(bytes(x))]
    if isinstance(x, float):
        return "float", [_hash(float(x).hex())]
    if isinstance(x, numbers.Integral) and not isinstance(x, jax.Array):
        return "int", [_hash(str(int(x)))]
    if isinstance(x, complex):
        return "complex", [_hash(complex(x).real.hex(), complex(x).imag.hex())]

    # arrays by dtype, shape and bytes, and those of JAX also by how they promote
    if isinstance(x, np.dtype):
        return f"dtype {x}", []
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return f"key {x.dtype}", [_array(jax.random.key_data(x))]
    if isinstance(x, jax.Array | np.ndarray | np.generic) and x.dtype != object:
        return "weak array" if getattr(x, "weak_type", False) else "array", [_array(x)]
    return None


def _array(x: Any) -> bytes:
    x = np.asarray(x)
    return _hash(str(x.dtype), str(x.shape), np.ascontiguousarray(x).tobytes())


def _name(cls: type) -> str:
    """Of a class; without the module where it is the user's, who may run that as a script."""
    return f"{cls.__module__}.{cls.__qualname__}" if _is_installed(cls.__module__) else cls.__qualname__


def _is_installed(module: str | None) -> bool:
    """Whether a module is of a library: pbad_jax, Python's own, or where packages are installed."""
    if module is None or module.partition(".")[0] in {"pbad_jax", *sys.stdlib_module_names} - {"__main__"}:
        return True
    return _is_package(module)


def _is_package(module: str) -> bool:
    """Whether it is where packages are installed, but not Python's own nor pbad_jax."""
    if module.partition(".")[0] in {"pbad_jax", *sys.stdlib_module_names}:
        return False
    return (getattr(sys.modules.get(module), "__file__", None) or "").startswith(INSTALLED)


def _cached(cls: type) -> set[str]:
    """Names of what objects of a class compute once."""
    return {k for c in cls.__mro__ for k, v in vars(c).items() if isinstance(v, functools.cached_property)}


def _beside(x: Any) -> dict[str, Any]:
    """Attributes of an object, but for what it computes once, and what a base of another library keeps to itself."""
    inner = any(_is_package(base.__module__) for base in type(x).__mro__)
    own = {k: v for k, v in getattr(x, "__dict__", {}).items() if k not in _cached(type(x))}
    return {k: v for k, v in own.items() if not (inner and k.startswith("_"))}


def _function_of(x: Any) -> Any:
    """The function of what a class makes of one: a property, a static method."""
    if isinstance(x, property):
        return x.fget
    if isinstance(x, staticmethod | classmethod):
        return x.__func__
    return x.func if isinstance(x, functools.cached_property) else x


def _globals_of(f: types.FunctionType) -> dict[str, Any]:
    """The globals that a function and those within it name; of modules of the user also the attributes."""
    found, codes = {}, [f.__code__]
    while codes:
        code = codes.pop()
        codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in f.__globals__:
                value = f.__globals__[step.argval]
                found[step.argval] = value
                if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
                    own = {k: getattr(value, k) for k in code.co_names if hasattr(value, k)}
                    found |= {f"{step.argval}.{k}": v for k, v in own.items()}
    return found
