"""Lets a callback process run as another user than its Executor, before any of the owner's code is loaded."""

import ctypes
import os
import pwd

CALLBACK_USER = "DULY_CALLBACK_USER"
"""Names the user; set by the Executor, and taken out of the environment."""

_PR_SET_DUMPABLE = 4


def become_callback_user() -> None:
    """Become the user that the environment names, with the user's groups; nothing if it names none.

    Clears the signal of the parent's death: ask for it after this.
    """
    name = os.environ.pop(CALLBACK_USER, "")
    if not name:
        return
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    # A change of the user makes /proc/self root's, which keeps callbacks from what any process may read of itself.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)
    os.environ |= {"HOME": user.pw_dir, "USER": name, "LOGNAME": name}
