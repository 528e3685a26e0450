"""Errors that a user can cause, each with its remedy.

Every error a user can cause derives from `MetaxcError` and answers four questions: what failed, what was
given, what was expected, what to do. The command line prints it without a traceback and exits with 2.
"""


class MetaxcError(Exception):
    """An error that a user can cause and fix.

    Args:
        what: What failed, one sentence.
        got: What was given.
        expected: What was expected.
        fix: What to do now.
    """

    def __init__(self, what: str, *, got: object = None, expected: object = None, fix: str | None = None):
        self.what, self.got, self.expected, self.fix = what, got, expected, fix
        answers = [("got", got), ("expected", expected), ("to fix", fix)]
        lines = [f"  {name}: {text}" for name, text in answers if text is not None]
        super().__init__("\n".join([what, *lines]))


class DataError(MetaxcError):
    """Items, queries, clicks or vectors that cannot be used as they are."""


class ModelError(MetaxcError):
    """A model folder that is damaged, incomplete, too new, or does not fit its encoder."""


class ConfigError(MetaxcError):
    """A setting that is unknown or out of its range."""
