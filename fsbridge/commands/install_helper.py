"""`fsbridge install-helper`: the link through which mount(8) and fstab know the type `fsbridge`.

Not here: what the helper does (`mount.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fsbridge.commands.arguments import Parser, make_absolute
from fsbridge.errors import SetupError

HELPER = "/sbin/mount.fsbridge"


def make_parser(program: str) -> Parser:
    """Return the parser of `install-helper`."""
    parser = Parser(
        prog=program,
        description=f"Link {HELPER} to this program, so that `mount -t fsbridge SOURCE MOUNTPOINT` works, and so do lines "
        "of /etc/fstab with the type fsbridge.",
        epilog="example: sudo fsbridge install-helper && sudo mount -t fsbridge /data/brain.n5 /mnt/brain -o cache_size=1G",
    )
    parser.add_argument("--remove", action="store_true", help="remove the link")
    return parser


def run(program: str, argv: Sequence[str]) -> int:
    """Make the link to the helper of mount(8), or remove it."""
    args = make_parser(program).parse_args(argv)
    target = None
    if os.path.lexists(HELPER):
        target = os.readlink(HELPER) if os.path.islink(HELPER) else ""
        if os.path.basename(target) != "fsbridge":
            raise SetupError(f"{HELPER} exists, and is not a link to fsbridge", f"see what it is: ls -l {HELPER}")
    try:
        if args.remove:
            if target is not None:
                os.unlink(HELPER)
        else:
            _link(_find_this_program())
    except OSError as error:
        hint = f"as root: sudo {make_absolute(sys.argv[0])} install-helper" if isinstance(error, PermissionError) else ""
        raise SetupError(f"{HELPER}: {error.strerror}", f"{hint}{' --remove' if hint and args.remove else ''}") from None
    return 0


def _link(target: str) -> None:
    new = f"{HELPER}.new"
    if os.path.islink(new):
        os.unlink(new)
    os.symlink(target, new)
    os.rename(new, HELPER)


def _find_this_program() -> str:
    """Return the absolute path of the running program.

    A mere name would not help mount(8), which has neither the caller's PATH nor the virtual environment.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "fsbridge")
    for path in (make_absolute(sys.argv[0]), beside):
        if os.path.basename(path) == "fsbridge" and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise SetupError("the program fsbridge is not beside this Python", f"install it, then run {beside} install-helper")
