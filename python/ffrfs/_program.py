"""Finds and runs the program ``ffrfs``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

StrPath = Union[str, "os.PathLike[str]"]

#: The beginning of a line with a warning of the program.
_WARNING = "ffrfs: warning: "


class Error(Exception):
    """The program failed, or a mount cannot be used. ``code`` is the exit code of the program, or 5; the text is the message.

    Codes: 1 wrong usage, 2 a source cannot be read, 3 a source is not a usable container, 4 a checksum does not match,
    5 mounting or unmounting failed, 6 the output cannot be written, 7 a store does not allow the access, 8 a store cannot be
    reached, 9 a password is missing or wrong, or ffrfs does not read this kind of encryption, 130 interrupted.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.code)


def program() -> str:
    """The path of the program.

    Raises:
        FileNotFoundError: the program is not found.
    """
    named = os.environ.get("FFRFS")
    if named:
        found = shutil.which(named)
        if found is None:
            raise FileNotFoundError(f"FFRFS is {named}, which is no program")
        return found
    for directory in _script_directories():
        if os.access(directory / "ffrfs", os.X_OK):
            return str(directory / "ffrfs")
    found = shutil.which("ffrfs")
    if found is None:
        raise FileNotFoundError(
            f"the program ffrfs is neither where pip puts programs (beside {sys.executable}, or with --user) nor in "
            "PATH: install the wheel into this environment, or set FFRFS to its path"
        )
    return found


def _script_directories() -> Iterator[Path]:
    """The directories where pip puts programs: beside the interpreter, and those of ``--user``, which need not be in PATH."""
    if sys.executable:  # an interpreter in another program has no path
        yield Path(sys.executable).parent
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sysconfig.get_path("scripts", f"{os.name}_user"))


def run(
    command: str,
    arguments: Sequence[StrPath],
    *,
    stdin: Optional[bytes] = None,
    keep_open: Sequence[int] = (),
) -> list[str]:
    """Runs a sub-command to its end.

    Returns:
        The program's warnings.

    Raises:
        Error: the program failed; the text is its message on stderr.
    """
    done = subprocess.run(
        [program(), command, *(os.fspath(argument) for argument in arguments)],
        input=stdin if stdin is not None else b"",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=tuple(keep_open),
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().removeprefix("ffrfs: ")
        raise Error(said or f"ffrfs {command} ended with {done.returncode}", done.returncode)
    lines = done.stderr.decode(errors="replace").splitlines()
    return [line.removeprefix(_WARNING) for line in lines if line.startswith(_WARNING)]


def flags(options: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as long flags: ``memory="2G"`` is ``--memory=2G``, ``ro=True`` is ``--ro``.

    ``None`` and ``False`` give no flag; a list or tuple repeats the flag.
    """
    out: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                out.append(flag)
            elif one is not None and one is not False:
                out.append(f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return out
