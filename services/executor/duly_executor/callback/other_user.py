"""Lets a callback process run as another user than its Executor, before any of the owner's code is loaded."""

import ctypes
import os
import pwd

CALLBACK_USER = "DULY_CALLBACK_USER"
"""Names the user; set by the Executor, and taken out of the environment."""

_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38


def become_callback_user() -> None:
    """Become the user that the environment names, with the user's groups; nothing if it names none.

    No program that the process starts gains rights: setuid bits and file capabilities have no effect. Clears the signal of
    the parent's death: ask for it after this.

    Raises:
        OSError: the kernel refuses.
    """
    name = os.environ.pop(CALLBACK_USER, "")
    if not name:
        return
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:  # else a setuid program leads back to root
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    # A change of the user makes /proc/self root's, which keeps callbacks from what any process may read of itself.
    libc.prctl(_PR_SET_DUMPABLE, 1)
    os.environ |= {"HOME": user.pw_dir, "USER": name, "LOGNAME": name, "SHELL": user.pw_shell}
