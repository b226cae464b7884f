"""Every exception that pbad_jax raises, and the status codes of a step.

Exceptions are for what can be seen before tracing: files, models, options, shapes. Their message names
the object, the value, the rule and the fix. What goes wrong afterwards, inside `jit`, is a `Status`.
"""

import enum


def printable(text: str) -> str:
    """The text without control characters but line ends: names come from files, and terminals obey some."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class _Shown:
    """An exception whose message is safe on a terminal."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ModelError(_Shown, ValueError):
    """A model breaks a physical or structural rule.

    Example:
        >>> try:
        ...     pbad.chain(0)
        ... except pbad.ModelError as error:
        ...     print(error)
        chain: n is 0; it must be an integer ≥ 1
    """


class ModelFileError(ModelError):
    """A model file cannot be read, or says something impossible.

    Example:
        >>> try:
        ...     pbad.load("<mujoco><worldbody><body></worldbody></mujoco>")
        ... except pbad.ModelFileError as error:
        ...     print("this file cannot be read")
        this file cannot be read
    """


class UnsupportedFeatureError(ModelFileError):
    """A model file asks for things that this library cannot honour. `features` lists all of them.

    Example:
        >>> try:
        ...     pbad.load('<mujoco><worldbody/><deformable><flex name="f" dim="1" vertex="0 0 0 1 0 0" element="0 1"'
        ...               ' body="world"/></deformable></mujoco>')
        ... except pbad.UnsupportedFeatureError as error:
        ...     print(len(error.features) > 0)
        True
    """

    def __init__(self, message: str, features: tuple[str, ...] = ()):
        super().__init__(message)
        self.features = features


class OptionError(_Shown, ValueError):
    """An option has a value that is not allowed.

    Example:
        >>> try:
        ...     pbad.Options(dt=-1.0)
        ... except pbad.OptionError as error:
        ...     print(error)
        dt is -1.0; it must be positive and finite, s
    """


class StateError(_Shown, ValueError):
    """A state or a control does not fit its model.

    Example:
        >>> try:
        ...     pbad.make_state(model, q=[1.0, 2.0])
        ... except pbad.StateError as error:
        ...     print(error)
        q has shape (2,); model 'chain:2' wants (4,) because nq = 4: joint0[0:2], joint1[2:4]
    """


class TaskError(_Shown, ValueError):
    """A task, a policy, or the parameters of an environment do not fit.

    Example:
        >>> try:
        ...     pbad.envs.make("antt")
        ... except pbad.TaskError as error:
        ...     print(str(error)[:31])
        there is no environment 'antt';
    """


class StepError(_Shown, RuntimeError):
    """A step did not converge; raised only by `info.assert_ok()`, never while stepping.

    Example:
        >>> traj, info = pbad.rollout(arm, pbad.make_state(arm, v=[1e3, 0.0]), n_steps=2, options=options)
        >>> try:
        ...     info.assert_ok()
        ... except pbad.StepError as error:
        ...     print("a step failed")
        a step failed
    """


class GradientError(_Shown, AssertionError):
    """A derivative is not what differences say; raised only by `assert_ok()` of a gradient report.

    Example:
        >>> issubclass(pbad.GradientError, AssertionError)
        True
    """


class CheckpointError(_Shown, OSError):
    """A file of a long rollout is damaged, or of another job.

    Example:
        >>> issubclass(pbad.CheckpointError, OSError)
        True
    """


class UnsupportedFeatureWarning(UserWarning):
    """A model was loaded although some of its features have no effect.

    Example:
        >>> issubclass(pbad.UnsupportedFeatureWarning, UserWarning)
        True
    """


class Status(enum.IntEnum):
    """How a step ended; stored as int8 for every step of every lane.

    Example:
        >>> pbad.Status(1).name
        'MAX_ITER'
        >>> pbad.Status(1).advice
        'The iteration limit came first: halve dt, or raise max_iterations.'
    """

    CONVERGED = 0
    MAX_ITER = 1
    STALLED = 2
    NONFINITE_INPUT = 3
    NONFINITE_EVAL = 4
    BRANCH = 5
    FROZEN = 6
    INACCURATE = 7

    @property
    def advice(self) -> str:
        """One sentence: what happened, and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "The residual is below the tolerance and the motion is continuous.",
    Status.MAX_ITER: "The iteration limit came first: halve dt, or raise max_iterations.",
    Status.STALLED: "No step reduces the residual any further: halve dt, or loosen the tolerance.",
    Status.NONFINITE_INPUT: (
        "The state, the control or the model holds NaN or inf, or dt is not positive: look at what was passed in."
    ),
    Status.NONFINITE_EVAL: (
        "The equations gave NaN or inf: look for overflowing forces and for masses ≤ 0, or halve dt."
    ),
    Status.BRANCH: (
        "The root found is not continuous with the last step, goes through what it touches, "
        "turns a joint right round, or has energy that no force explains: halve dt."
    ),
    Status.FROZEN: "An earlier step of this lane failed and its last good state is kept: start from a new state.",
    Status.INACCURATE: "It takes more parts to be as accurate as is asked: raise max_parts or accuracy, or halve dt.",
}
